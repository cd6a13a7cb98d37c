"""Errors that end a distillation, in words for people.

DistilError
├── BadRecipe     what was asked for cannot work, or is another recipe than the folder's
└── NotWritten    a file could not be written; the folder goes on where it was
"""

from pathlib import Path


class DistilError(Exception):
    """Root of the errors that a distillation raises on purpose."""


class BadRecipe(DistilError):
    """What was asked for cannot work; the message says what would."""


class NotWritten(DistilError):
    """A file could not be written, most likely because the disk is full."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(
            f"{file}: {error.strerror or error}; nothing that was finished is lost: make room, and "
            "the same command goes on where it was"
        )
