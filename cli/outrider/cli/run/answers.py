"""Answers of a run: those of one arrangement, and of a second one that it is compared with.

Leaves their figures to `figures` and asking to `prompts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.placement.choose import Expected
from outrider.cli.service.arrangement import Arrangement
from outrider.client import Result


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """One prompt's answer, and the plain one if it was asked for."""

    prompt: str
    drafted: Result
    plain: Result | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to all prompts, and the arrangements that they are from."""

    answers: Sequence[PromptAnswer]
    arrangement: str = ""
    """What the service runs in; empty where that is not known."""
    drafted: str = ""
    plain: str = ""
    """The two arrangements that were compared, if two were."""
    others: Sequence[tuple[Expected, float]] = ()
    """What other arrangements would give, and that over plain decoding."""


def alone(prompts: Sequence[str], arrangement: Arrangement, results: Sequence[Result]) -> Answers:
    """Return the answers of one arrangement."""
    pairs = zip(prompts, results, strict=True)
    return Answers(tuple(PromptAnswer(*one) for one in pairs), arrangement.name)


def compared(
    prompts: Sequence[str],
    names: tuple[str, str],
    own: Sequence[Result],
    second: Sequence[Result],
    *,
    own_drafted: bool,
) -> Answers:
    """Return the answers of the service's own arrangement beside those of a second one."""
    sides = [(names[0], own), (names[1], second)]
    if not own_drafted:
        sides.reverse()
    (drafted, with_draft), (plain, without) = sides
    pairs = zip(prompts, with_draft, without, strict=True)
    return Answers(tuple(PromptAnswer(*one) for one in pairs), names[0], drafted, plain)
