"""Files that settings name: their text, and whether they are others by now."""

import os
from pathlib import Path

from outrider.contract.settings import SettingsError

Stamp = tuple[int, int, int]


def read_text(name: str, file: str) -> str:
    """Return the text of the file of a setting; raises `SettingsError` that names both."""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings.{name}: {file} cannot be read: {error}") from error


def stamp(file: str) -> Stamp | None:
    """Return what is another for another file; None: there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
