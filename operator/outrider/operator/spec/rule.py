"""A rule between fields, for the API server (CEL) and for `outrider run` (Python), and its check.

Limits of a single field are where the field is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic.alias_generators import to_snake
from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between fields, in both of its forms."""

    path: str
    """Path of the object that the rule checks, as `spec.draft`; empty: the whole. It holds where
    there is no such object."""
    cel: str
    """CEL that the API server evaluates, with that object as `self`."""
    message: str
    """Error message if it does not hold."""
    holds: Callable[[Any], bool] | None
    """Python form for the parts of `spec`; None: about a change, which only the API server sees."""
    field: str = ""
    """Key below `path` that the error names, as `.engine`."""
    tolerated: bool = False
    """Newer than services that break it: those that are stored are read nevertheless. `holds` is
    not None."""

    @property
    def place(self) -> str:
        """Path that the error names."""
        return f"{self.path}{self.field}".removeprefix(".")


class Whole(Protocol):
    """A description from its root."""

    @property
    def metadata(self) -> Any: ...


def violations(whole: Whole, rules: Iterable[Rule]) -> Iterator[str]:
    """Yield a line for each rule that does not hold: the path and the message."""
    for rule in rules:
        part = _at(whole, rule.path)
        if part is not None and rule.holds is not None and not rule.holds(part):
            yield f"{rule.place}: {rule.message}"


def check_rules(whole: Whole, rules: Sequence[Rule]) -> None:
    """Raise what pydantic turns into a `ValidationError` if a rule does not hold."""
    if lines := list(violations(whole, rules)):
        raise PydanticCustomError("rules", "{lines}", {"lines": "\n".join(lines)})


def _at(whole: Whole, path: str) -> Any:
    part: Any = whole
    for key in filter(None, path.split(".")):
        part = None if part is None else getattr(part, to_snake(key))
    return part
