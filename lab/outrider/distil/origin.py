"""What the shards of a folder follow from, beside them: shards of anything else are refused."""

from pathlib import Path
from typing import Any

from outrider.distil.errors import BadRecipe
from outrider.distil.shards import shard_files
from outrider.distil.training import changed
from outrider.distil.whole_files import read_json, write_json

ORIGIN = "recipe.json"


def check_origin(folder: Path, now: dict[str, Any], what: str, instead: str) -> None:
    """Raise `BadRecipe` if there are shards of another origin; a folder without shards is free."""
    before = read_json(folder / ORIGIN) or {}
    differences = changed(before, now)
    if differences and shard_files(folder):
        raise BadRecipe(f"{folder} holds {what}: {differences}; {instead}")


def write_origin(folder: Path, now: dict[str, Any]) -> None:
    """Say what shards to come follow from; raises `NotWritten`."""
    if not shard_files(folder):
        write_json(folder / ORIGIN, now)
