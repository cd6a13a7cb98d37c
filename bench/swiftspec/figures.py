"""Figures of `bench.swiftspec`: what answers came to, and what a delay on the link costs.

Pure. Leaves asking to `sides`, drawing to `plots`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.record.report import Spread, median_and_range
from bench.swiftspec.answer import LOCK_STEP, MIRRORED, Answer
from outrider.contract.state import TimelineSpan

TOLERANCE = 0.03
"""Share of its tokens that the mirrored tree may lose beyond what fall-outs cost."""
WHOLE = 0.95
"""Share of a round trip from which on it counts as lost: delays of a busy machine vary."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One side under one link, over all its answers."""

    tokens_per_second: float
    over_mirrored: Spread
    """Tokens a second over the mirrored tree's, answer by answer."""
    tokens_per_pass: float
    milliseconds_per_step: float
    """Milliseconds of all time, by passes of the target: waits are in it."""
    fall_ins: float
    """Share of commits, by the target's copy of the tree."""
    draft_fall_ins: float | None
    """Share of commits, by the draft's own tree; None where it is in the target's process."""
    target_idle: float
    """Share of the time without a pass."""
    draft_idle: float
    draft_passes_per_pass: float
    draft_rows_per_pass: float
    """Rows of the draft, by passes of the target."""
    recomputed_per_pass: float
    messages_per_token: float
    bytes_per_token: float
    answers: int


def figures(answers: Sequence[Answer], mirrored: Sequence[Answer]) -> Figures:
    """Sum up a side's answers; `mirrored`: those of the mirrored tree to the same prompts."""
    tokens, passes = sum(a.tokens for a in answers), sum(a.passes for a in answers)
    seconds = sum(a.seconds for a in answers)
    known = sum(a.draft_commits for a in answers)
    pairs = zip(answers, mirrored, strict=True)
    return Figures(
        tokens_per_second=tokens / seconds,
        over_mirrored=median_and_range([own.rate / other.rate for own, other in pairs]),
        tokens_per_pass=tokens / passes,
        milliseconds_per_step=1e3 * seconds / passes,
        fall_ins=sum(a.fall_ins for a in answers) / max(1, sum(a.commits for a in answers)),
        draft_fall_ins=sum(a.draft_fall_ins for a in answers) / known if known else None,
        target_idle=1 - sum(busy(a.target, a) for a in answers) / seconds,
        draft_idle=1 - sum(busy(a.draft, a) for a in answers) / seconds,
        draft_passes_per_pass=sum(len(a.draft) for a in answers) / passes,
        draft_rows_per_pass=sum(one.rows for a in answers for one in a.draft) / passes,
        recomputed_per_pass=sum(a.recomputed for a in answers) / passes,
        messages_per_token=sum(a.messages for a in answers) / tokens,
        bytes_per_token=sum(a.bytes for a in answers) / tokens,
        answers=len(answers),
    )


def busy(passes: Iterable[TimelineSpan], answer: Answer) -> float:
    """Return the seconds of an answer for which one of these passes ran; they do not overlap."""
    began, ended = answer.began, answer.ended
    return sum(max(0.0, min(one.ended, ended) - max(one.began, began)) for one in passes)


def by_side(answers: Mapping[str, Sequence[Answer]]) -> dict[str, Figures]:
    """Return the figures of all sides that answered the same prompts in the same order."""
    return {name: figures(own, answers[MIRRORED]) for name, own in answers.items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim on what a delay costs, and whether it holds."""

    side: str
    round_trip_ms: float
    """Milliseconds of round trip that were added."""
    claim: str
    bound: float
    found: float
    had: bool


def verdicts(links: Mapping[float, Mapping[str, Figures]]) -> list[Verdict]:
    """Return what is claimed of each delay; `links`: by milliseconds each way, 0 among them."""
    near = links[0.0]
    return [
        claim(near[side], figures_of[side], 2 * delay)
        for delay, figures_of in links.items()
        if delay > 0
        for side, claim in ((MIRRORED, of_mirrored), (LOCK_STEP, of_lock_step))
        if side in figures_of
    ]


def of_mirrored(near: Figures, far: Figures, round_trip: float) -> Verdict:
    """Claim that only fall-outs cost the mirrored tree a round trip; it is in milliseconds.

    Fall-outs are those of the far run, by the draft's own tree; the step is the near run's.
    """
    assert far.draft_fall_ins is not None
    lost = 1 - far.tokens_per_second / near.tokens_per_second
    bound = (1 - far.draft_fall_ins) * round_trip / near.milliseconds_per_step + TOLERANCE
    claim = "share of tokens a second lost <= fall-outs * round trip / step + 3 %"
    return Verdict(MIRRORED, round_trip, claim, bound, lost, lost <= bound)


def of_lock_step(near: Figures, far: Figures, round_trip: float) -> Verdict:
    """Claim that every step in lock step takes a round trip longer; it is in milliseconds."""
    longer = far.milliseconds_per_step - near.milliseconds_per_step
    claim = f"milliseconds that a step takes longer >= {WHOLE} * round trip"
    bound = WHOLE * round_trip
    return Verdict(LOCK_STEP, round_trip, claim, bound, longer, longer >= bound)


def differing(texts: Iterable[tuple[Any, Sequence[int]]]) -> list[Any]:
    """Return the keys, in order, that have more than one text."""
    found: dict[Any, set[tuple[int, ...]]] = {}
    for key, ids in texts:
        found.setdefault(key, set()).add(tuple(ids))
    return [key for key, different in found.items() if len(different) > 1]


def ratios(
    depth: int, near: Mapping[str, Figures], links: Mapping[float, Mapping[str, Figures]]
) -> dict[str, float]:
    """Return what may be quoted of one depth."""
    found = {}
    for name, one in near.items():
        word = name.replace(" ", "_")
        if name != MIRRORED:
            found[f"{word}_over_mirrored_{depth}x"] = one.over_mirrored.median
        for delay, sides in links.items():
            if delay > 0 and name in sides:
                rate = sides[name].tokens_per_second / links[0.0][name].tokens_per_second
                found[f"{word}_{delay:g}ms_over_0ms_{depth}x"] = rate
    return found
