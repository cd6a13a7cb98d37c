"""Folders of workers: none is left behind, whatever became of its worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outrider.worker.host.scratch import LOCK, NEW_SECONDS, PREFIX, scratch_folder

HOLD = (
    "import sys, time; from pathlib import Path;"
    "from outrider.worker.host.scratch import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])) as folder:\n"
    "    print(folder, flush=True); time.sleep(600)"
)


def aged(folder: Path) -> Path:
    """Make a folder older than those that are left alone."""
    then = time.time() - NEW_SECONDS - 1
    os.utime(folder, (then, then))
    return folder


def test_a_folder_is_there_for_its_worker_alone(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert not any(tmp_path.iterdir())


def test_the_next_worker_removes_what_a_killed_one_left_and_nothing_of_one_that_lives(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        folder = aged(Path(worker.stdout.readline().strip()))
        with scratch_folder(tmp_path):
            assert folder.is_dir(), "its worker lives"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert folder.is_dir(), "it had no time to remove it"
    with scratch_folder(tmp_path):
        assert not folder.exists()


def test_what_is_new_or_no_folder_of_a_worker_stays(tmp_path: Path) -> None:
    new, other = tmp_path / f"{PREFIX}new", tmp_path / f"{PREFIX}other"
    for folder in (new, other):
        folder.mkdir()
    (new / LOCK).touch()
    aged(other)
    with scratch_folder(tmp_path):
        assert new.is_dir()
        assert other.is_dir()
