"""Files that several components read or write: the user's cache, small files, API keys.

The cache is a folder for what outlives a run, the same in all processes of a user: prepared models,
compiled kernels, bytecode, measured facts, settings and logs of runs. Leaves what is in it to those
who put it there.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

NAME = "outrider"
OWN_VARIABLE, CACHES_VARIABLE = "OUTRIDER_CACHE", "XDG_CACHE_HOME"
"""Environment variables that name the cache, and the folder of all programs' caches."""


def user_cache() -> Path:
    """Return the folder that OUTRIDER_CACHE names, or else `outrider` in that of XDG_CACHE_HOME, or
    else in `~/.cache`; where that cannot be made and written, a folder among temporary files that
    is this user's alone.

    It exists. Raises `OSError` where there is neither.
    """
    try:
        folder = wanted_cache()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the latter where nobody knows a home
        return temporary_cache()
    return folder if os.access(folder, os.W_OK | os.X_OK) else temporary_cache()


def wanted_cache() -> Path:
    """Return where the cache is to be; raises `RuntimeError` where nobody knows a home."""
    if own := os.environ.get(OWN_VARIABLE):
        return Path(own).absolute()
    caches = os.environ.get(CACHES_VARIABLE)
    return (Path(caches).absolute() if caches else Path.home() / ".cache") / NAME


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


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """Let an `OSError` of a block name a file: that of a disk that gets full while it is written
    has no name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def write_text(file: Path, text: str) -> None:
    """Write a file; raise `OSError` that names it."""
    with naming(file):
        file.write_text(text, encoding="utf-8")


def write_whole(file: Path, text: str) -> None:
    """Write a file, and its folder if there is none: a reader finds it as it was, or as it is now.

    Raises `OSError` that names it, and then leaves no part.
    """
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with naming(file):
            fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def api_keys(text: str) -> tuple[str, ...]:
    """Return the keys of a file of API keys: one a line, without empty lines and spaces around."""
    return tuple(key for line in text.splitlines() if (key := line.strip()))
