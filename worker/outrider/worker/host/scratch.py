"""A worker's folder for sockets and the like, in the temporary folder; gone with the worker.

A worker that is killed cannot remove its own: the next one does, by the lock that only living
workers hold. Leaves what is in it to its users.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from outrider.contract.living_folder import LOCK, hold, is_held

PREFIX = "outrider-"
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
        lock = hold(Path(folder))
        try:
            yield Path(folder)
        finally:
            os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of workers that do not live any more."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            folder = lock.parent
            if time.time() - folder.stat().st_mtime > NEW_SECONDS and not is_held(folder):
                shutil.rmtree(folder, ignore_errors=True)
