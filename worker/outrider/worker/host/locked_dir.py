"""Folders that are made once, whole, by the first process that needs them; turns of processes.

Knows nothing of models: what goes into a folder is the caller's.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MANIFEST = "manifest.json"
PAUSE = 0.02
"""Seconds between two looks at a lock."""


def made_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after `build` has filled it if it was not there, or not as it was left.

    `build` writes into a temporary folder, which is renamed when it is complete: a folder that can
    be seen is whole. Other processes wait for the one that builds. A file whose size is not what
    the manifest says makes the folder be made again. A whole one is found where nothing can be
    written, too.
    """
    if is_whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{folder.name}.lock"):
        if not is_whole(folder):
            _make(folder, build)
    return folder


def is_whole(folder: Path) -> bool:
    """True if every file that the manifest names is there, in its size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(sizes) and all((folder / n).stat().st_size == s for n, s in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _make(folder: Path, build: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f".{folder.name}-*"):  # by a process that was killed
        shutil.rmtree(left)
    fresh = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    fresh.mkdir()
    try:
        build(fresh)
        sizes = {file.name: file.stat().st_size for file in fresh.iterdir()}
        (fresh / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        if folder.exists():
            os.rename(folder, f"{fresh}-old")
        os.rename(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(f"{fresh}-old", ignore_errors=True)


@contextlib.contextmanager
def turn(path: Path, most: float) -> Iterator[bool]:
    """Hold a file lock, after a wait of at most so many seconds; yield whether it is held.

    Where files cannot be written or locked, it is not.
    """
    try:
        file = path.open("w")
    except OSError:
        yield False
        return
    with file:
        yield _is_acquired(file, time.monotonic() + most)


def _is_acquired(file: IO[str], until: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        except OSError:
            return False
        time.sleep(PAUSE)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock; the kernel releases it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
