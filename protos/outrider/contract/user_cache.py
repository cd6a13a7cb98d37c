"""The user's cache: a folder for what outlives a run, the same in all processes of a user.

Prepared models, compiled kernels, bytecode, measured facts, settings and logs of runs. Leaves what
is in it to those who put it there.
"""

import errno
import os
import stat
import tempfile
from pathlib import Path

HOME_CACHE = (".cache", "outrider")
"""In a home."""


def user_cache() -> Path:
    """Return `~/.cache/outrider`; where nobody knows a home, or that cannot be made and written, a
    folder among temporary files that is this user's alone.

    It exists. Raises `OSError` where there is neither.
    """
    try:
        folder = Path.home().joinpath(*HOME_CACHE)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the latter where nobody knows a home
        return temporary_cache()
    return folder if os.access(folder, os.W_OK | os.X_OK) else temporary_cache()


def temporary_cache() -> Path:
    """Return the folder among temporary files, which others may neither have made nor write: it has
    code that is run. Raises `OSError`."""
    folder = Path(tempfile.gettempdir(), f"outrider-cache-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & others:
        words = "cannot be the cache: it is not this user's alone, and there is no home"
        raise PermissionError(errno.EACCES, words, str(folder))
    return folder
