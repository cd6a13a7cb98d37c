"""Comparison of answers to requests that were exactly alike: a check for wrong text under load.

Which answer of a pair is right cannot be seen from outside; that they differ is reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.cli.load.outcome import Outcome, Status


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers to one (prompt, seed) that are not the same."""

    pair: int
    prompt: str
    """Its last message."""
    seed: int
    temperature: float
    at: int
    """First character that differs."""
    expected: str
    """What the first answer says there."""
    found: str
    """What the other says instead."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Result of the comparison."""

    pairs: int
    """(prompt, seed) pairs with a whole answer."""
    compared: int
    """Answers that were held against the first whole one of their pair."""
    differences: tuple[Difference, ...]


def compare(outcomes: Iterable[Outcome]) -> TextCheck:
    """Hold every answer of a pair against its first whole one.

    Whole answers must be the same; what came of a cancelled or broken one must be its beginning.
    """
    groups: dict[int, list[Outcome]] = {}
    for one in outcomes:
        if one.job.pair is not None and (one.status is Status.COMPLETED or one.answer.pieces):
            groups.setdefault(one.job.pair, []).append(one)
    pairs = compared = 0
    differences: list[Difference] = []
    for group in groups.values():
        first = next((one for one in group if one.status is Status.COMPLETED), None)
        if first is None:
            continue
        others = [one for one in group if one is not first]
        pairs, compared = pairs + 1, compared + len(others)
        differences += [_difference(first, one) for one in others if not _same(first, one)]
    return TextCheck(pairs, compared, tuple(differences))


def _same(first: Outcome, other: Outcome) -> bool:
    if other.status is not Status.COMPLETED:
        return first.answer.text.startswith(other.answer.text)
    ends = (first.answer.finish_reason, other.answer.finish_reason)
    return first.answer.text == other.answer.text and ends[0] == ends[1]


def _difference(first: Outcome, other: Outcome) -> Difference:
    both = list(zip(first.answer.text, other.answer.text, strict=False))
    at = next((at for at, (one, two) in enumerate(both) if one != two), len(both))
    return Difference(
        pair=first.job.pair or 0,
        prompt=first.job.turns[-1].content,
        seed=first.job.seed,
        temperature=first.job.temperature,
        at=at,
        expected=_shown(first, at),
        found=_shown(other, at),
    )


def _shown(one: Outcome, at: int) -> str:
    return one.answer.text[at : at + 40] or f"(the end: {one.answer.finish_reason})"
