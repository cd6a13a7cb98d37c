"""Hashes of files, remembered where they can be."""

import hashlib
from pathlib import Path

from outrider.worker.model.fingerprint import file_hashes, ignore_progress


def test_files_are_hashed_where_nothing_can_be_remembered(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    (tmp_path / "file").touch()
    found = file_hashes([tmp_path / "weights"], tmp_path / "file", ignore_progress)
    assert found == [hashlib.sha256(b"abc").hexdigest()]
    assert {one.name for one in tmp_path.iterdir()} == {"file", "weights"}
