"""What is wrong with the YAML of a service, and what of it one machine cannot do.

What may be in it is `outrider.operator.spec`'s.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outrider.cli.service_file import IGNORED, beyond_one_machine
from outrider.operator.spec import SpecError, SpeculativeService, load

_PROBLEM = re.compile(r"(?P<path>[A-Za-z][^\s:]*): (?P<message>.*)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a description."""

    path: str
    """Of the field, as `spec.target.engine.threads`; empty: the document as a whole."""
    message: str
    """The value and what is allowed."""

    @classmethod
    def of(cls, line: str) -> "Problem":
        """Read one line of a `SpecError`."""
        found = _PROBLEM.fullmatch(line)
        return cls(found["path"], found["message"]) if found else cls("", line)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def as_json(self) -> dict[str, str]:
        """Return plain values."""
        return {"path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in one document."""

    name: str = ""
    """Of the service; empty where there are errors."""
    errors: tuple[Problem, ...] = ()
    refused: tuple[Problem, ...] = ()
    """What `outrider run` refuses, on one machine."""
    ignored: tuple[str, ...] = ()
    """Paths that `outrider run` ignores."""

    @property
    def notes(self) -> Iterator[str]:
        """Yield a line for each thing that is for a cluster only."""
        for problem in self.refused:
            yield f"`outrider run` refuses it: {problem}"
        if self.ignored:
            yield f"`outrider run` ignores {', '.join(self.ignored)}"

    def as_json(self) -> dict[str, Any]:
        """Return what was found as plain values."""
        return {
            "valid": not self.errors,
            "errors": [one.as_json() for one in self.errors],
            "refused_by_run": [one.as_json() for one in self.refused],
            "ignored_by_run": list(self.ignored),
        }


def check(text: str) -> Checked:
    """Return what is wrong with a YAML text."""
    try:
        service = load(text)
    except SpecError as error:
        return Checked(errors=tuple(map(Problem.of, str(error).splitlines())))
    return Checked(
        service.metadata.name,
        refused=tuple(map(Problem.of, beyond_one_machine(service))),
        ignored=tuple(_ignored(service)),
    )


def _ignored(service: SpeculativeService) -> Iterator[str]:
    """Yield the paths that are set and mean something in a cluster only."""
    data = service.model_dump(by_alias=True, exclude_unset=True)
    for path in IGNORED:
        part: Any = data
        for key in path.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if part is not None:
            yield path
