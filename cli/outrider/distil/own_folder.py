"""The folder of one distillation: nobody else's files, and one run at a time."""

import fcntl
import os
from pathlib import Path

from outrider.distil.card import CARD
from outrider.distil.draft_folder import SERVICE
from outrider.distil.errors import BadRecipe, NotWritten
from outrider.distil.origin import ORIGIN
from outrider.distil.recipe import Recipe
from outrider.distil.report import PICTURE, REPORT
from outrider.worker.model.checkpoint import WEIGHTS
from outrider.worker.model.source import Source

WRITTEN = (WEIGHTS, "config.json", SERVICE, CARD, REPORT, PICTURE)
"""What a distillation writes beside its work."""
LOCK = ".lock"


def check_folder(recipe: Recipe) -> None:
    """Raise `BadRecipe` if the draft would be written over its target or over others' files."""
    target, out = Source.parse(recipe.target).resolve().resolve(), recipe.out.resolve()
    if out in (target, target.parent):
        raise BadRecipe(f"{recipe.out} is the target's own folder; take another --out")
    found = [name for name in WRITTEN if (out / name).exists()]
    if found and not (recipe.answers / ORIGIN).exists():
        raise BadRecipe(
            f"{recipe.out} has {', '.join(found)}, and no work of a distillation that would go on: "
            "take another --out"
        )


def lock(folder: Path) -> None:
    """Take a draft's folder for this process; the lock ends with it.

    Raises `BadRecipe` if another process has it, and `NotWritten`.
    """
    file = folder / "work" / LOCK
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadRecipe(f"another outrider distil is at work in {folder}") from None
    except OSError as error:
        raise NotWritten(file, error) from error
