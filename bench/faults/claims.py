"""Claims about a pool under faults, as met or missed, and the table of what was seen; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.faults.figures import LOOKED_FOR, FaultFigures, of_kinds
from bench.faults.plan import Kind
from outrider.cli.load.exchange import Exchange, Status

BACK_SECONDS = 1.0
"""Within which throughput is to be back after a draft's return."""
WAIT_SECONDS = 0.25
"""Most that a stalled draft may add to the longest pause of a stream. A wait for growth ends with
the time that it is worth, a few passes; the rest is room for a busy machine."""
MOVED = 0.9
"""Sessions on other drafts, while one is away, for each request that runs."""
AVOIDED = 0.5
"""Share of its sessions that a slow draft may keep."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that is claimed of a run, and what was found."""

    claim: str
    found: str
    had: bool | None
    """None: no fault of the run tried it."""
    figure: float | None = None

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "met", False: "missed", None: "not tried"}[self.had]


def claims(
    outcomes: Sequence[Exchange],
    texts: Mapping[str, Any],
    found: Sequence[FaultFigures],
    calm: float,
    targets: int,
) -> list[Claim]:
    """Return every claim; `calm`: the longest pause of a stream without a fault, in seconds."""
    away = of_kinds(found, Kind.KILLED, Kind.PARTITIONED)
    return [
        same_text(texts),
        none_lost(outcomes),
        back_at_once([*away, *of_kinds(found, Kind.STOPPED)]),
        one_wait(of_kinds(found, Kind.STOPPED), calm),
        sessions_move(away),
        evenly(away, targets),
        slow_is_avoided(of_kinds(found, Kind.DELAYED)),
    ]


def same_text(texts: Mapping[str, Any]) -> Claim:
    """Claim that every answer is that of plain decoding."""
    wrong = len(texts["differences"])
    words = f"{wrong} of {texts['compared']} answers differ"
    had = wrong == 0 if texts["compared"] else None
    return Claim("text is that of plain decoding, greedy and sampled", words, had, wrong)


def none_lost(outcomes: Sequence[Exchange]) -> Claim:
    """Claim that every request is answered."""
    lost = sum(one.status is not Status.COMPLETED for one in outcomes)
    had = lost == 0 if outcomes else None
    return Claim("no request is lost", f"{lost} of {len(outcomes)} lost", had, lost)


def back_at_once(found: Sequence[FaultFigures]) -> Claim:
    """Claim that throughput is back soon after a return."""
    claim = f"throughput is back within {BACK_SECONDS:g} s of a draft's return"
    if not found:
        return Claim(claim, "", None)
    late = [one for one in found if one.recovered is None or one.recovered > BACK_SECONDS]
    worst = max(LOOKED_FOR if one.recovered is None else one.recovered for one in found)
    words = f"{len(found) - len(late)} of {len(found)} returns, the last after {worst:.1f} s"
    return Claim(claim, words, not late, worst)


def one_wait(found: Sequence[FaultFigures], calm: float) -> Claim:
    """Claim that a stalled draft costs a stream no more than one wait."""
    claim = f"a stalled draft lengthens the longest pause of a stream by {WAIT_SECONDS:g} s at most"
    if not found:
        return Claim(claim, "", None)
    longest = max(one.longest_gap for one in found)
    words = f"{longest:.2f} s, without faults {calm:.2f} s"
    return Claim(claim, words, longest <= calm + WAIT_SECONDS, longest - calm)


def sessions_move(found: Sequence[FaultFigures]) -> Claim:
    """Claim that requests of a draft that is away get sessions on others."""
    claim = f"requests have sessions on other drafts while one is away: {MOVED:g} of them at least"
    moved = [one.moved for one in found if one.moved is not None]
    if not moved:
        return Claim(claim, "", None)
    return Claim(claim, f"{min(moved):.2f}", min(moved) >= MOVED, min(moved))


def evenly(found: Sequence[FaultFigures], targets: int) -> Claim:
    """Claim that they go to the draft with the most room: none has many more than another.

    Each target balances its own, to one session.
    """
    claim = f"they go to the draft with the most room: {targets} sessions apart at most, in mean"
    spread = [one.spread for one in found if one.spread is not None]
    if not spread:
        return Claim(claim, "", None)
    return Claim(claim, f"{max(spread):.2f}", max(spread) <= targets, max(spread))


def slow_is_avoided(found: Sequence[FaultFigures]) -> Claim:
    """Claim that a draft behind a slow link gets fewer sessions."""
    claim = f"a slow draft is avoided: it keeps {AVOIDED:g} of its share of sessions at most"
    kept = [
        one.share_during / one.share_before
        for one in found
        if one.share_during is not None and one.share_before
    ]
    if not kept:
        return Claim(claim, "", None)
    return Claim(claim, f"{max(kept):.2f}", max(kept) <= AVOIDED, max(kept))


HEAD = (
    *("fault", "draft", "at, s", "for, s", "tokens/s before", "during"),
    *("back after, s", "linked after, s", "longest pause, s", "waiting"),
    *("its sessions before", "during", "sessions per request elsewhere"),
)


def table(found: Sequence[FaultFigures]) -> str:
    """Return what was seen of each fault, as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *(_cells(one) for one in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(one: FaultFigures) -> tuple[str, ...]:
    event, fault = one.event, one.event.fault
    kind = f"{fault.kind}, {1e3 * fault.delay:.0f} ms" if fault.delay else str(fault.kind)
    return (
        *(kind, str(fault.draft), f"{event.began:.0f}", f"{event.returned - event.began:.1f}"),
        *(f"{one.rate_before:.0f}", f"{one.rate_during:.0f}"),
        _or(one.recovered, ".1f", "not in 6 s"),
        _or(one.linked, ".1f", "never"),
        f"{one.longest_gap:.2f}",
        f"{one.waited:.0%}",
        f"{one.share_before:.0%}",
        _or(one.share_during, ".0%", "unknown"),
        _or(one.moved, ".2f", "unknown"),
    )


def _or(figure: float | None, form: str, without: str) -> str:
    return without if figure is None else format(figure, form)


def listed(found: Sequence[Claim]) -> str:
    """Return claims as Markdown."""
    rows = [f"| {one.claim} | {one.found or '-'} | {one.verdict} |" for one in found]
    return "\n".join(["| claim | found | |", "| --- | --- | --- |", *rows])
