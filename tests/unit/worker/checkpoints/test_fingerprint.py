"""Hashes of files, remembered where they can be."""

import hashlib
from pathlib import Path

from outrider.worker.checkpoints.fingerprint import (
    combined,
    file_hashes,
    ignore_progress,
    weights_sha256,
)


def test_files_are_hashed_where_nothing_can_be_remembered(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    (tmp_path / "file").touch()
    found = file_hashes([tmp_path / "weights"], tmp_path / "file", ignore_progress)
    assert found == [hashlib.sha256(b"abc").hexdigest()]
    assert {one.name for one in tmp_path.iterdir()} == {"file", "weights"}


def test_weights_of_one_file_have_the_hash_of_that_file(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(file.name)
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert weights_sha256(files[:1], tmp_path, ignore_progress) == hashes[0]
    assert weights_sha256(files, tmp_path, ignore_progress) == combined(*hashes)
