"""Room on disk that a distillation will take, looked at before hours are spent."""

import shutil
from pathlib import Path

from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft
from outrider.worker.model.config import ModelConfig

TEXT_BYTES = 5
"""Most bytes of a token and its writer."""
MARGIN = 200 << 20


def answer_bytes(config: ModelConfig, tokens: int) -> int:
    """Return the bytes of so many tokens and their features."""
    return tokens * (2 * config.hidden + TEXT_BYTES)


def checkpoint_bytes(draft: Draft) -> int:
    """Return the bytes of a checkpoint, with the one before it: weights and two moments each."""
    return 2 * 3 * 4 * sum(p.numel() for p in draft.parameters())


def check_room(folder: Path, needed: int, what: str) -> None:
    """Raise `BadRecipe` if the disk of a folder has no room for so many bytes more."""
    free = shutil.disk_usage(folder).free
    if free < needed + MARGIN:
        raise BadRecipe(
            f"{folder}: {what} will take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free "
            f"({MARGIN / 1e9:.1f} GB of them are left alone)"
        )
