"""Folders of runs: those of living commands stay, whatever their age."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.machine import run_dir
from outrider.cli.machine.run_dir import KEEP_SECONDS, RunFolder
from outrider.contract.living_folder import is_held
from outrider.contract.settings import ModelSettings, Role, WorkerSettings

SETTINGS = WorkerSettings(role=Role.DRAFT, name="tiny", model=ModelSettings(uri="file:///none"))
HOLDER = """
import sys
from pathlib import Path
from outrider.cli.machine.run_dir import RunFolder

folder = RunFolder(Path(sys.argv[1]))
print(folder.path, flush=True)
sys.stdin.read()
"""


def made_old(folder: Path) -> Path:
    """Give a folder a time of change at which nobody keeps it for its logs."""
    long_ago = folder.stat().st_mtime - KEEP_SECONDS - 1
    os.utime(folder, (long_ago, long_ago))
    return folder


def test_the_folder_of_a_living_command_stays_and_that_of_a_dead_one_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        others = made_old(Path(other.stdout.readline().strip()))
        RunFolder(tmp_path).remove()
        assert (others / "links").is_dir()
        other.kill()
    failed = RunFolder(tmp_path)
    assert not others.exists()
    assert failed.path.is_dir()


def test_a_folder_that_goes_while_it_is_looked_at_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = made_old(RunFolder(tmp_path).path)
    look = run_dir.is_held

    def removed_meanwhile(folder: Path) -> bool:
        (folder / "lock").unlink()
        (folder / "links").rmdir()
        folder.rmdir()
        return look(folder)

    monkeypatch.setattr(run_dir, "is_held", removed_meanwhile)
    RunFolder(tmp_path).remove()
    assert not gone.exists()


def test_a_folder_that_somebody_has_removed_can_be_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for one in (folder.links, folder.path):
        (one / "lock").unlink(missing_ok=True)
        one.rmdir()
    folder.remove()


def test_what_cannot_be_looked_at_stays_and_costs_no_other_its_end(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.touch()
    closed = tmp_path / "closed"
    (closed / "lock").mkdir(parents=True)  # no lock that could be opened, as another user's
    old = tmp_path / "old"
    old.mkdir()
    for one in (file, closed, old):
        made_old(one)
    RunFolder(tmp_path).remove()
    assert file.exists()
    assert closed.is_dir()
    assert not old.exists()


def test_a_folder_that_could_not_be_made_again_is_made_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    folder = RunFolder(tmp_path / "runs")
    shutil.rmtree(folder.path)
    with monkeypatch.context() as patched:
        patched.setattr(run_dir, "hold", full)
        for _ in range(2):
            with pytest.raises(OSError, match="no space left"):
                folder.write("draft-0", SETTINGS)
    assert folder.write("draft-0", SETTINGS).exists()
    assert is_held(folder.path)
    folder.remove()


@pytest.mark.parametrize("missing", ["links", "lock"])
def test_what_is_missing_in_a_folder_is_made_again(tmp_path: Path, missing: str) -> None:
    folder = RunFolder(tmp_path / "runs")
    (folder.path / missing).rename(tmp_path / "elsewhere")
    folder.write("draft-0", SETTINGS)
    assert folder.links.is_dir()
    assert is_held(folder.path)
    folder.remove()
