"""Training: a draft comes nearer to its target, and a kill changes nothing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft
from outrider.distil.shards import Chat
from outrider.distil.start import check_layers, default_layers, start
from outrider.distil.target import Target
from outrider.distil.training import (
    Corpus,
    Training,
    TrainingRecipe,
    check_writable,
    distance,
)
from outrider.worker.checkpoints.load import load
from tests.distilling import written

RECIPE = TrainingRecipe(steps=100, batch_tokens=500, warm_up=2, seed=3)


@pytest.fixture
def corpus(target: Target) -> Corpus:
    chats = written(target.prepared, 40)
    return Corpus(chats[:16], chats[16:])


def begun(target: Target) -> Draft:
    return start(target.config, load(target.prepared)[1], [0], range(target.config.vocab))


def training(target: Target, file: Path, corpus: Corpus) -> Training:
    torch.set_num_threads(1)
    return Training(begun(target), corpus, RECIPE, file, {"chats": len(corpus.chats)})


def test_training_brings_a_draft_nearer(target: Target, corpus: Corpus, tmp_path: Path) -> None:
    one = training(target, tmp_path / "draft.pt", corpus)
    one.run(lambda now: None)
    assert [point["step"] for point in one.curve] == [0, 50, 100]
    assert one.curve[-1]["divergence"] < 0.8 * one.curve[0]["divergence"]
    assert one.curve[-1]["agreement"] > one.curve[0]["agreement"]


def test_a_loss_is_of_float32_where_products_are_not(target: Target, corpus: Corpus) -> None:
    features = torch.from_numpy(corpus.chats[0].features.astype(np.float32))
    draft = begun(target)
    exact = distance(draft, features.flip(0), features)
    with torch.autocast("cpu", torch.bfloat16):
        rough = distance(draft, features.flip(0), features)
    assert rough.divergence.dtype == torch.float32
    assert rough.guessed.exp().sum(-1) == pytest.approx(torch.ones(len(features)), abs=1e-4)
    assert rough.divergence.mean().item() == pytest.approx(exact.divergence.mean().item(), rel=0.05)


def test_training_that_was_killed_ends_as_if_it_had_not_been(
    target: Target, corpus: Corpus, tmp_path: Path
) -> None:
    whole = training(target, tmp_path / "whole.pt", corpus)
    whole.run(lambda now: None)

    class Killed(Exception):
        pass

    def kill(now: Training) -> None:
        if now.step == 77:
            raise Killed

    with pytest.raises(Killed):
        training(target, tmp_path / "cut.pt", corpus).run(kill)
    resumed = training(target, tmp_path / "cut.pt", corpus)
    resumed.run(lambda now: None)
    assert resumed.curve == whole.curve
    for own, other in zip(resumed.draft.parameters(), whole.draft.parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_checkpoint_of_another_recipe_is_refused(
    target: Target, corpus: Corpus, tmp_path: Path
) -> None:
    file = tmp_path / "draft.pt"
    one = dataclasses.replace(RECIPE, steps=1)
    Training(begun(target), corpus, one, file, {"chats": 24}).run(lambda now: None)
    other = dataclasses.replace(RECIPE, steps=2)
    with pytest.raises(BadRecipe, match=r"another recipe: steps 1, not 2, chats 24, not 25$"):
        Training(begun(target), corpus, other, file, {"chats": 25}).run(lambda now: None)


def test_too_few_chats_are_refused() -> None:
    chat = Chat(np.zeros(2, np.int32), np.zeros(2, np.int8), np.zeros((1, 4), np.float16))
    for corpus in (Corpus([], [chat]), Corpus([chat], [])):
        with pytest.raises(BadRecipe, match="at least one of each"):
            corpus.check()
    Corpus([chat], [chat]).check()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecipe, match="missing is no folder"):
        check_writable(tmp_path / "missing" / "draft.pt")


@pytest.mark.parametrize(("layers", "found"), [(1, (0,)), (2, (0,)), (3, (0, 2)), (30, (0, 1, 29))])
def test_a_draft_begins_with_the_first_layers_and_the_last(
    layers: int, found: tuple[int, ...]
) -> None:
    assert default_layers(layers) == found


@pytest.mark.parametrize("layers", [(3,), (-1,), (), (1, 0), (0, 0)])
def test_layers_that_a_target_lacks_are_refused(target: Target, layers: tuple[int, ...]) -> None:
    with pytest.raises(BadRecipe, match="the target has 0 to 2"):
        check_layers(layers, target.config)
