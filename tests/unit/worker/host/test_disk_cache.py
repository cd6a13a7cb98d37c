"""The cache on disk: turns of processes, and folders that are whole."""

from pathlib import Path

import pytest

from outrider.worker.host.disk_cache import made_once, turn


def test_one_at_a_time_has_the_turn(tmp_path: Path) -> None:
    with turn(tmp_path / "lock", 0.0) as first, turn(tmp_path / "lock", 0.0) as second:
        assert (first, second) == (True, False)
    with turn(tmp_path / "lock", 0.0) as again:
        assert again


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with turn(tmp_path / "file" / "lock", 1000.0) as held:
        assert not held


def test_a_whole_folder_is_found_without_its_lock(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "a").write_text("b")

    made_once(tmp_path / "made", build)
    (tmp_path / ".made.lock").unlink()
    (tmp_path / ".made.lock").mkdir()  # as good as a disk that cannot be written
    assert made_once(tmp_path / "made", build) == tmp_path / "made"
    (tmp_path / "made" / "a").unlink()
    with pytest.raises(IsADirectoryError):
        made_once(tmp_path / "made", build)
