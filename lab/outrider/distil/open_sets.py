"""Named open sets of prompts, each inside an installed Python package.

Nothing is downloaded: the extra `distil` pins the packages.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.contract.version import missing_extra
from outrider.distil.errors import BadRecipe


@dataclass(frozen=True, slots=True)
class OpenSet:
    """One set."""

    package: str
    """Distribution and version, as the extra pins it."""
    module: str
    folder: str
    """Inside the module."""
    licence: str
    read: Callable[[Path], list[str]]

    def prompts(self) -> list[str]:
        """Return its prompts, each once; raises `BadRecipe` if the package is not installed."""
        spec = importlib.util.find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            lack = missing_extra("distil")
            raise BadRecipe(f"prompts: {self.package} is not installed; {lack}")
        folder = Path(spec.submodule_search_locations[0]) / self.folder
        return list(dict.fromkeys(self.read(folder)))


def _chatterbot(folder: Path) -> list[str]:
    """Return the first turn of each conversation of the corpus's YAML files."""
    import yaml

    found: list[str] = []
    for file in sorted(folder.glob("*.yml")):
        fields: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        turns = [str(turns[0]).strip() for turns in fields["conversations"] if turns]
        found += [turn for turn in turns if turn]
    return found


OPEN_SETS = {
    "chatterbot": OpenSet(
        "chatterbot-corpus==1.3.3",
        "chatterbot_corpus",
        "data/english",
        "BSD-3-Clause",
        _chatterbot,
    ),
}
"""Open sets by the name that `prompts` takes."""
