"""The cache on disk that processes share: whole folders, small files of facts, and turns.

Knows nothing of models: what goes into a folder or a file is the caller's. Where nothing can be
written, what is whole still serves.
"""

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from outrider.contract.files import CACHES_VARIABLE, OWN_VARIABLE, write_whole

logger = logging.getLogger(__name__)

T = TypeVar("T")
MANIFEST = "manifest.json"
ELSEWHERE = f"{OWN_VARIABLE} or {CACHES_VARIABLE} puts the cache elsewhere"


def made_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after `build` has filled it if it was not there, or not as it was left.

    `build` writes into a temporary folder, which is renamed when it is complete: a folder that can
    be seen is whole. Other processes wait for the one that builds. A file whose size is not what
    the manifest says makes the folder be made again.
    """
    if not is_whole(folder):
        from filelock import FileLock

        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not is_whole(folder):
                _make(folder, build)
    return folder


def is_whole(folder: Path) -> bool:
    """True if every file that the manifest names is there, in its size."""
    sizes = remembered(folder / MANIFEST, lambda facts: facts.items()) or ()
    try:
        return bool(sizes) and all((folder / n).stat().st_size == s for n, s in sizes)
    except OSError:
        return False


def _make(folder: Path, build: Callable[[Path], None]) -> None:
    fresh = folder.with_name(f".{folder.name}-fresh")
    shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
    fresh.mkdir()
    try:
        build(fresh)
        sizes = {file.name: file.stat().st_size for file in fresh.iterdir()}
        write_whole(fresh / MANIFEST, json.dumps(sizes))
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def turn(path: Path, most: float) -> Iterator[bool]:
    """Hold a file lock, after a wait of at most so many seconds; yield whether it is held."""
    from filelock import FileLock

    lock = FileLock(path)
    with contextlib.suppress(OSError):  # another has it for too long, or files cannot be locked
        lock.acquire(timeout=most)
    try:
        yield lock.is_locked
    finally:
        lock.release()


def remembered(file: Path, read: Callable[[Any], T]) -> T | None:
    """Return what `read` makes of a file's facts; None if there are none, or not such.

    `read` may raise `ValueError`, `KeyError`, `TypeError` or `AttributeError`.
    """
    try:
        return read(json.loads(file.read_text(encoding="utf-8")))
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s is damaged, and made again: %r", file, error)
        return None


def remember(file: Path, facts: dict[str, Any]) -> None:
    """Write facts whole.

    Where that cannot be done the next process that wants them finds them out again.
    """
    try:
        write_whole(file, json.dumps(facts))
    except OSError as error:
        logger.info("%s is not remembered: %s", file, error)


def check_room(folder: Path, needed: int, elsewhere: str) -> None:
    """Raise `OSError` if a folder's disk has not so many bytes free; it says what puts the folder
    `elsewhere`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        words = f"{needed / 1e6:,.1f} MB are needed here and {free / 1e6:,.1f} MB are free"
        raise OSError(errno.ENOSPC, f"{words}; {elsewhere}", str(folder))


def found_of(files: Iterable[Path], memo: Path, find: Callable[[], T]) -> T:
    """Return what `find` makes of files, a JSON value, remembered for as long as they stay."""
    states = [[file.name, state.st_size, state.st_mtime_ns] for file, state in _states(files)]

    def read(facts: Any) -> T | None:
        known: T = facts["found"]
        return known if facts["files"] == states else None

    known = remembered(memo, read)
    if known is None:
        known = find()
        remember(memo, {"files": states, "found": known})
    return known


def _states(files: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            yield file, file.stat()


@functools.cache
def sources_sha256(*folders: Path) -> str:
    """Return SHA-256 of the Python sources in folders, in hex: any line may change what is kept."""
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest()
