"""Shards and what they follow from: those of anything else are refused."""

from pathlib import Path

import pytest
import torch

from outrider.distil.errors import BadRecipe
from outrider.distil.origin import check_origin, write_origin
from outrider.distil.shards import shard_file
from outrider.distil.start import start
from outrider.distil.target import Target
from outrider.worker.checkpoints.load import load


def test_shards_of_another_origin_are_refused(tmp_path: Path) -> None:
    write_origin(tmp_path, {"draft": "a", "seed": 1})
    shard_file(tmp_path, 0).touch()
    check_origin(tmp_path, {"draft": "a", "seed": 1}, "guesses", "remove it")
    with pytest.raises(BadRecipe, match=r"holds guesses: draft a, not b; remove it$"):
        check_origin(tmp_path, {"draft": "b", "seed": 1}, "guesses", "remove it")


def test_shards_that_say_nothing_of_their_origin_are_refused(tmp_path: Path) -> None:
    shard_file(tmp_path, 0).touch()
    with pytest.raises(BadRecipe, match="draft None, not a"):
        check_origin(tmp_path, {"draft": "a"}, "guesses", "remove it")


def test_a_folder_without_shards_takes_any_origin(tmp_path: Path) -> None:
    for seed in (1, 2):
        check_origin(tmp_path, {"seed": seed}, "answers", "remove it")
        write_origin(tmp_path, {"seed": seed})
    shard_file(tmp_path, 0).touch()
    check_origin(tmp_path, {"seed": 2}, "answers", "remove it")


def test_drafts_are_told_apart_by_weights_and_outputs(target: Target) -> None:
    weights = load(target.prepared)[1]
    drafts = [start(target.config, weights, [0], ids) for ids in ([1, 2], [1, 2], [1, 3])]
    one, same, other = (draft.digest() for draft in drafts)
    assert one == same != other
    with torch.no_grad():
        drafts[1].norm[0] += 1
    assert drafts[1].digest() != one
