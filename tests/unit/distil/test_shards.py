"""Shards: files that are there as a whole or not at all, and features that can be made again."""

import resource
from pathlib import Path

import numpy as np
import pytest

from outrider.contract.settings import Dtype
from outrider.distil.answers import LONGEST
from outrider.distil.engine import Room, engine_of
from outrider.distil.errors import NotWritten
from outrider.distil.shards import (
    GIVEN,
    features_file,
    load_shard,
    save_shard,
    shard_file,
    shard_files,
    written_tokens,
)
from outrider.distil.target import Target
from outrider.distil.teacher import complete
from outrider.distil.whole_files import write_whole
from tests.distilling import written


def test_a_shard_gives_back_its_chats(target: Target, tmp_path: Path) -> None:
    chats = written(target.prepared, 4)
    save_shard(tmp_path, 0, chats)
    for chat, read in zip(chats, load_shard(shard_file(tmp_path, 0)), strict=True):
        assert np.array_equal(chat.tokens, read.tokens)
        assert np.array_equal(chat.writers, read.writers)
        assert np.array_equal(chat.features, read.features)
    wrote = sum(int((chat.writers != GIVEN).sum()) for chat in chats)
    assert written_tokens(shard_files(tmp_path)) == wrote


def test_features_that_are_missing_are_made_again(target: Target, tmp_path: Path) -> None:
    save_shard(tmp_path, 0, written(target.prepared, 4))
    file = shard_file(tmp_path, 0)
    before = features_file(file).read_bytes()
    features_file(file).unlink()
    engine = engine_of(target.prepared, Dtype.FP32, Room(1, LONGEST), None, 1)
    complete(engine, file)
    engine.close()
    assert features_file(file).read_bytes() == before


def test_shards_behind_a_gap_do_not_count(target: Target, tmp_path: Path) -> None:
    chats = written(target.prepared, 1)
    for number in (0, 1, 3):
        save_shard(tmp_path, number, chats)
    assert shard_files(tmp_path) == [shard_file(tmp_path, number) for number in (0, 1)]


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(NotWritten, match=r"kept: File too large; .*goes on where it was"):
            write_whole(file, lambda opened: opened.write(bytes(2000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]
