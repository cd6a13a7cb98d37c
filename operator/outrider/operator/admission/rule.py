"""A rule between fields whose breach is worth a sentence, for the API server and the operator."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_snake

from outrider.operator.spec.service import SpeculativeService


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """A rule between fields, in both of its forms."""

    path: str
    """Path of the object that the rule checks, as `spec.draft`. It holds where there is no such
    object."""
    cel: str
    """CEL that the API server evaluates, with that object as `self`."""
    message: str
    """Sentence if it does not hold."""
    holds: Callable[[Any], bool]
    """Python form, which the operator evaluates: it has no CEL."""
    field: str
    """Key below `path` that the sentence names, as `.engine`."""

    @property
    def expression(self) -> str:
        """The rule over a whole object, which holds where it has no such part.

        It is about `dyn(object)`: an API server that knows the definition takes offence at fields
        of a `podTemplate`, which has whatever pods have.
        """
        cel = re.sub(r"\bself\b", f"dyn(object).{self.path}", self.cel)
        steps = self.path.split(".")[1:]  # `spec` is always there
        if not steps:
            return cel
        there = "dyn(object).spec" + "".join(f".?{step}" for step in steps) + ".hasValue()"
        return f"!{there} || ({cel})"

    @property
    def place(self) -> str:
        """Path that the sentence names."""
        return f"{self.path}{self.field}"


def broken(service: SpeculativeService, rules: Iterable[AdviceRule]) -> Iterator[str]:
    """Yield a line for each rule that does not hold: the path and the message."""
    for rule in rules:
        part = _at(service, rule.path)
        if part is not None and not rule.holds(part):
            yield f"{rule.place}: {rule.message}"


def _at(service: SpeculativeService, path: str) -> Any:
    part: Any = service
    for key in path.split("."):
        part = None if part is None else getattr(part, to_snake(key))
    return part
