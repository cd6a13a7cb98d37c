"""The folder of one run: the workers' settings files and logs, in the user's cache.

Knows nothing of what is in them.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from outrider.contract.files import OWN_VARIABLE, user_cache, wanted_cache, write_text
from outrider.contract.living_folder import LOCK, hold, is_held
from outrider.contract.settings import WorkerSettings

KEEP_SECONDS = 7 * 24 * 3600
"""Logs of runs that failed stay so long after their last change."""


def runs() -> Path:
    """Where runs are kept: `runs` in the user's cache."""
    return told_cache() / "runs"


def told_cache() -> Path:
    """The user's cache; says so, once, where it is not where it should be. Raises `OSError`."""
    folder = user_cache()
    try:
        wanted = str(wanted_cache())
    except RuntimeError:  # nobody knows a home
        wanted = "~/.cache/outrider"
    if str(folder) != wanted:
        _tell(folder, wanted)
    return folder


@cache
def _tell(folder: Path, wanted: str) -> None:
    words = f"What runs keep goes to {folder}: there is no {wanted} to write to"
    print(f"{words} ({OWN_VARIABLE} names another place).", file=sys.stderr)


class RunFolder:
    """`<runs>/<process id>-<random>`: removed after a clean run, kept after a failed one.

    Other commands leave it alone as long as this process lives. If somebody removes it all the
    same, it is made again when it is needed.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or runs()
        _remove_old(parent)
        parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
        self.links = self.path / "links"
        """Where targets and drafts meet to share memory."""
        self.links.mkdir()
        self._lock = hold(self.path)

    def log(self, worker: str) -> Path:
        """The log of a worker."""
        return self.path / f"{worker}.log"

    def write(self, worker: str, settings: WorkerSettings) -> Path:
        """Write the settings file of a worker; raises `OSError` that names it."""
        self._make_again()
        file = self.path / f"{worker}.json"
        write_text(file, settings.to_json())
        return file

    def remove(self) -> None:
        """Remove the folder."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)
        os.close(self._lock)

    def _make_again(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.links.mkdir(exist_ok=True)
        if not self._holds():
            lock = hold(self.path)  # first: where that fails, it is tried again with the next write
            os.close(self._lock)
            self._lock = lock

    def _holds(self) -> bool:
        """Whether the lock that is there is the one held."""
        try:
            return os.path.samestat((self.path / LOCK).stat(), os.fstat(self._lock))
        except FileNotFoundError:
            return False


def _remove_old(parent: Path) -> None:
    """Remove folders that failed or killed runs left long ago."""
    limit = time.time() - KEEP_SECONDS
    for folder in parent.glob("*"):
        with contextlib.suppress(OSError):  # no folder, another user's, or gone meanwhile
            if folder.stat().st_mtime < limit and not is_held(folder):
                shutil.rmtree(folder, ignore_errors=True)
