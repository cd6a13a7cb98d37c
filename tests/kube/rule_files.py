"""The good and bad objects of `rules/`: one pair of files for each rule, or more.

A file holds one object, or an object and what it is changed to. A bad one says in its first lines
what is wrong with the last object, as `path: message`. Applies nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrider.operator.spec.rule import Rule
from outrider.operator.spec.rules import SCALER, SERVICE

FOLDER = Path(__file__).parent / "rules"
RULES = (*SERVICE, *SCALER)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file."""

    path: Path

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Its objects, in the order to apply."""
        return list(yaml.safe_load_all(self.path.read_text(encoding="utf-8")))

    @property
    def problems(self) -> list[str]:
        """What is wrong with the last one."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [line.removeprefix("# ") for line in lines if line.startswith("# ")]


def files(folder: str) -> list[RuleFile]:
    """Those of "good" or "bad"."""
    return [RuleFile(path) for path in sorted((FOLDER / folder).glob("*.yaml"))]


def line(rule: Rule) -> str:
    """What a file says of a rule that is broken."""
    return f"{rule.place}: {rule.message}"
