"""A worker's folder for sockets and the like, in the temporary folder; gone with the worker.

A worker that is killed cannot remove its own: the next one does, by the lock that only living
workers hold. Leaves what is in it to its users.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "outrider-"
LOCK = "lock"
NEW_SECONDS = 60.0
"""Age under which a folder is left alone: its worker may be about to lock it."""


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, and remove it in the end; first remove those of workers that were killed.

    Raises `OSError`.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent) as folder:
        lock = os.open(Path(folder) / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of workers that do not live any more."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            if time.time() - lock.parent.stat().st_mtime > NEW_SECONDS and _is_free(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    """Return True if nobody holds a lock; raise `OSError` if it cannot be known."""
    found = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(found)
    return True
