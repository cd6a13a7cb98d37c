"""Files that are there as a whole or not at all, whenever the process or the machine ends."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from outrider.distil.errors import NotWritten

PART = ".part"
"""Ending of a file that is being written."""


def write_whole(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file, and show it once it is on disk; raises `NotWritten`."""
    part = file.with_name(file.name + PART)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as opened:
            write(opened)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NotWritten(file, error) from error


def write_json(file: Path, fields: Any) -> None:
    """Write plain values; raises `NotWritten`."""
    text = json.dumps(fields, indent=1) + "\n"
    write_whole(file, lambda opened: opened.write(text.encode()))


def read_json(file: Path) -> Any:
    """Return the plain values of a file; None if it is not there."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
