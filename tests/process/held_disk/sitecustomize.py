"""A disk that can hold what is written to temporary files, or read from them.

Python loads this as it starts where PYTHONPATH begins with this folder, so it needs nothing but the
standard library. Leaves what is held, and when, to `HeldDisk` of `tests.process.test_killed_moves`.
"""

import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["HELD_DISK"])
"""`hold-write` in it holds writes, `hold-read` reads; `write-waits` and `read-waits` say so."""
POLL_SECONDS = 0.01
_plain = tempfile.TemporaryFile


class HeldFile(io.FileIO):
    """A file on that disk."""

    def write(self, data: Any) -> int:
        _wait("write")
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        _wait("read")
        return super().readinto(buffer)


def _wait(what: str) -> None:
    while (FOLDER / f"hold-{what}").exists():
        (FOLDER / f"{what}-waits").touch()
        time.sleep(POLL_SECONDS)


def _held(*arguments: Any, **options: Any) -> HeldFile:
    with _plain(*arguments, **options) as file:
        return HeldFile(os.dup(file.fileno()), "r+b")


tempfile.TemporaryFile = _held
