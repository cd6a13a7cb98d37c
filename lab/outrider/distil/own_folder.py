"""The folder of one distillation: nobody else's files, and one run at a time."""

import fcntl
import os
from pathlib import Path

from outrider.distil.card import CARD
from outrider.distil.draft_folder import SERVICE, TOKENIZER
from outrider.distil.errors import BadRecipe, NotWritten
from outrider.distil.origin import ORIGIN
from outrider.distil.recipe import Recipe
from outrider.distil.report import PICTURE, REPORT
from outrider.worker.checkpoints.checkpoint import WEIGHTS
from outrider.worker.checkpoints.source import ModelSource

WRITTEN = (WEIGHTS, "config.json", SERVICE, CARD, REPORT, PICTURE, *TOKENIZER)
"""What a distillation writes beside its work."""
LOCK = ".lock"


def check_folder(recipe: Recipe) -> None:
    """Raise `BadRecipe` if the draft would be written over its target or over others' files."""
    target, out = ModelSource.parse(recipe.target).resolve().resolve(), recipe.out.resolve()
    if out in (target, target.parent):
        raise BadRecipe(f"{recipe.out} is the target's own folder; take another `out`")
    found = [name for name in WRITTEN if (out / name).exists()]
    if found and not (recipe.answers / ORIGIN).exists():
        raise BadRecipe(
            f"{recipe.out} has {', '.join(found)}, and no work of a distillation that would go on: "
            "take another `out`"
        )


def lock(folder: Path) -> None:
    """Take a draft's folder for this process; the lock ends with it.

    Raises `BadRecipe` if another process has it or reads its answers, and `NotWritten`.
    """
    file = folder / "work" / LOCK
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _lock(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), fcntl.LOCK_EX, folder)
    except OSError as error:
        raise NotWritten(file, error) from error


def lock_to_read(folder: Path) -> None:
    """Take a folder as one of several readers, so that no more answers come; the lock ends with
    this process. One that was copied has none, and needs none.

    Raises `BadRecipe` if a process writes answers there, and `NotWritten`.
    """
    file = folder / "work" / LOCK
    try:
        if file.exists():
            _lock(os.open(file, os.O_RDONLY), fcntl.LOCK_SH, folder)
    except OSError as error:
        raise NotWritten(file, error) from error


def _lock(opened: int, kind: int, folder: Path) -> None:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadRecipe(f"another outrider distil is at work in {folder}") from None
