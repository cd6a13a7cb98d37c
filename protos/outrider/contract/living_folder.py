"""Folders of living processes, told from those of dead ones by a lock that only the living hold.

Linux and macOS free the lock when the process ends, however it ends.
"""

import fcntl
import os
from pathlib import Path

LOCK = "lock"


def hold(folder: Path) -> int:
    """Return a descriptor by which this process holds a folder until it closes it, or ends; raises
    `OSError`."""
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def is_held(folder: Path) -> bool:
    """Return True if a living process holds a folder; raises `OSError` if it cannot be known."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
