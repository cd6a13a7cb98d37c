"""Small files that a reader finds whole: as they were, or as they are now."""

import os
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a file, and its folder if there is none; raises `OSError` and then leaves no part."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
