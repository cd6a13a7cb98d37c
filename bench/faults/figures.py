"""Figures of each fault, from samples and streams, and the claims that they answer; pure.

Seconds are counted from the beginning of the load.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.faults.injector import Event
from bench.faults.plan import Kind
from bench.faults.samples import Sample

CALM_MEASURED = 5.0
"""Seconds before a fault that it is compared with: the last part of the calm time."""
WINDOW = 1.0
"""Seconds over which a rate after a return is taken."""
STEP = 0.1
"""Seconds between the beginnings of two windows over which a rate after a return is taken."""
AS_BEFORE = 0.9
"""Share of the earlier rate that counts as being back: rates of calm seconds differ by as much."""
LOOKED_FOR = 6.0
"""Seconds after a return in which its effects are looked for: the shortest calm time."""
SETTLED = 1.0
"""Seconds after a fault's beginning from which on sessions are counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Pause between two pieces of one stream."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.ended - self.began

    def meets(self, began: float, ended: float) -> bool:
        """True if some of it lies in this time."""
        return self.began < ended and self.ended > began


@dataclass(frozen=True, slots=True)
class FaultFigures:
    """What was seen of one fault; None: it could not be measured."""

    event: Event
    rate_before: float
    """Tokens a second of all targets together."""
    rate_during: float
    recovered: float | None
    """Seconds from the return until the rate is as before; None: it was not within 6 s."""
    linked: float | None
    """Seconds from the return until all targets have a link that is up."""
    longest_gap: float
    """Longest gap of all streams, in seconds, while the fault lasted."""
    waited: float
    """Share of the targets' time that they waited for drafts while it lasted."""
    share_before: float
    """The draft's share of all sessions before the fault."""
    share_during: float | None
    """The draft's share during the fault; None: it says nothing, or nobody has a session."""
    moved: float | None
    """Sessions on the other drafts for each request that runs."""
    spread: float | None
    """Mean difference between the others' most and fewest sessions."""


def seen(
    event: Event, samples: Sequence[Sample], gaps: Iterable[Gap], targets: int
) -> FaultFigures:
    """Return the figures of one fault."""
    began, returned = event.began, event.returned
    before = within(samples, began - CALM_MEASURED, began)
    during = within(samples, began + SETTLED, returned)
    draft, earlier = event.fault.draft, rate(samples, began - CALM_MEASURED, began)
    others = [without(one, draft) for one in during]
    known = [(one, own) for one, own in zip(during, others, strict=True) if own]
    lasted = returned - began
    return FaultFigures(
        event=event,
        rate_before=earlier,
        rate_during=rate(samples, began, returned),
        recovered=recovered(samples, returned, AS_BEFORE * earlier),
        linked=linked(samples, draft, returned, targets),
        longest_gap=max((gap.seconds for gap in gaps if gap.meets(began, returned)), default=0.0),
        waited=(at(samples, returned, "waited") - at(samples, began, "waited")) / lasted / targets,
        share_before=share(before, draft) or 0.0,
        share_during=share(during, draft),
        moved=ratio(sum(sum(own) for _, own in known), sum(one.running for one, _ in known)),
        spread=statistics.mean(max(own) - min(own) for _, own in known) if known else None,
    )


def within(samples: Iterable[Sample], began: float, ended: float) -> list[Sample]:
    """Return the samples of a time."""
    return [one for one in samples if began <= one.at < ended]


def without(sample: Sample, draft: int) -> list[int]:
    """Return the sessions of all drafts but one; empty if one of those says nothing."""
    others = [count for number, count in enumerate(sample.sessions) if number != draft]
    known = [count for count in others if count is not None]
    return known if len(known) == len(others) else []


def share(samples: Iterable[Sample], draft: int) -> float | None:
    """Return a draft's share of all sessions, over samples in which all drafts are known."""
    known = [
        [count for count in one.sessions if count is not None]
        for one in samples
        if None not in one.sessions
    ]
    return ratio(sum(one[draft] for one in known), sum(map(sum, known)))


def ratio(part: float, whole: float) -> float | None:
    """Return the part of a whole; None where there is no whole."""
    return part / whole if whole else None


def at(samples: Sequence[Sample], moment: float, name: str) -> float:
    """Return a counter at a moment, between the samples around it; the nearest at either end."""
    for one, other in itertools.pairwise(samples):
        if one.at <= moment <= other.at:
            low, high = getattr(one, name), getattr(other, name)
            return float(low + (high - low) * (moment - one.at) / (other.at - one.at))
    return float(getattr(samples[0 if moment < samples[0].at else -1], name))


def rate(samples: Sequence[Sample], began: float, ended: float) -> float:
    """Return tokens a second over a time."""
    return (at(samples, ended, "tokens") - at(samples, began, "tokens")) / (ended - began)


def recovered(samples: Sequence[Sample], returned: float, wanted: float) -> float | None:
    """Return the seconds from a return to the first window that is as fast as wanted."""
    for step in range(round(LOOKED_FOR / STEP)):
        after = step * STEP
        began = returned + after
        if began + WINDOW > samples[-1].at:
            return None
        if rate(samples, began, began + WINDOW) >= wanted:
            return after
    return None


def linked(samples: Sequence[Sample], draft: int, returned: float, targets: int) -> float | None:
    """Return the seconds from a return until all targets are linked to a draft."""
    for one in within(samples, returned, samples[-1].at):
        if one.links[draft] == targets:
            return one.at - returned
    return None


def calm_gap(gaps: Iterable[Gap], events: Sequence[Event]) -> float:
    """Return the longest pause that met no fault, nor the seconds after a return."""
    return max(
        (
            gap.seconds
            for gap in gaps
            if not any(gap.meets(one.began, one.returned + WINDOW) for one in events)
        ),
        default=0.0,
    )


def of_kinds(found: Iterable[FaultFigures], *kinds: Kind) -> list[FaultFigures]:
    """Return what was seen of faults of these kinds."""
    return [one for one in found if one.event.fault.kind in kinds]
