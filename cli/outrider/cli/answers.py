"""Answers of a run: those of one arrangement, and of a second one that it is compared with.

Leaves their figures to `figures` and asking to `prompts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.failures import Failure
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.estimate import Expected
from outrider.client import Result


@dataclass(frozen=True, slots=True)
class Asked:
    """What one arrangement answered to all prompts."""

    arrangement: Arrangement
    results: Sequence[Result]
    dtype: str
    """Numeric path of its target."""
    failure: Failure | None = None
    """Why its timeline is not written, where one was asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt's answer, and the plain one if it was asked for."""

    prompt: str
    drafted: Result
    plain: Result | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to all prompts, and the arrangements that they are from."""

    answers: Sequence[Answer]
    arrangement: str = ""
    """What the service runs in; empty where that is not known."""
    drafted: str = ""
    plain: str = ""
    """The two arrangements that were compared, if two were."""
    others: Sequence[tuple[Expected, float]] = ()
    """What other arrangements would give, and that over plain decoding."""
    failure: Failure | None = None
    """What failed after all was answered."""


def alone(prompts: Sequence[str], asked: Asked) -> Answers:
    """Return the answers of one arrangement."""
    found = tuple(Answer(p, r) for p, r in zip(prompts, asked.results, strict=True))
    return Answers(found, asked.arrangement.name, failure=asked.failure)


def compared(
    prompts: Sequence[str],
    own: Asked,
    second: Asked,
    others: Sequence[tuple[Expected, float]],
) -> Answers:
    """Return the answers of the service's own arrangement beside those of a second one."""
    swapped = own.arrangement.placement is None
    drafted, plain = (second, own) if swapped else (own, second)
    pairs = zip(prompts, drafted.results, plain.results, strict=True)
    return Answers(
        tuple(Answer(*one) for one in pairs),
        own.arrangement.name,
        drafted.arrangement.name,
        plain.arrangement.name,
        others,
        own.failure,
    )
