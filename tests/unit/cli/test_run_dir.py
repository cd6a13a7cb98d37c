"""Folders of runs: those of living commands stay, whatever their age."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.machine import run_dir
from outrider.cli.machine.run_dir import KEEP_SECONDS, RunFolder

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
