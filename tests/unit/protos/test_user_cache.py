"""The folder for what outlives a run: in a home, or where there is none a user's own."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from outrider.contract.files import temporary_cache, user_cache


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for variable in ("OUTRIDER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def test_it_is_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == tmp_path / ".cache" / "outrider"
    assert user_cache().is_dir()


def test_the_environment_may_put_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert user_cache() == tmp_path / "caches" / "outrider"
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "disk"))
    assert user_cache() == tmp_path / "disk"
    assert not (tmp_path / "home").exists()


def test_without_a_home_it_is_a_temporary_folder_of_the_user_s_own(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setitem(sys.modules, "pwd", None)
    found = user_cache()
    assert found.parent == temporary
    assert found.stat().st_mode & 0o777 == 0o700
    assert user_cache() == found  # what one run keeps, the next one finds


def test_so_it_is_where_the_home_cannot_be_written(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert user_cache().parent == temporary


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_so_it_is_where_the_cache_of_the_home_cannot_be_written(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".cache" / "outrider").mkdir(mode=0o500, parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache().parent == temporary


def test_a_folder_that_others_may_write_is_refused(temporary: Path) -> None:
    temporary_cache().chmod(0o777)  # code that lies there would be run
    with pytest.raises(PermissionError, match="not this user's alone"):
        temporary_cache()


def test_a_link_to_elsewhere_is_refused(tmp_path: Path, temporary: Path) -> None:
    folder = temporary_cache()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="not this user's alone"):
        temporary_cache()
