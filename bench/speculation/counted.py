"""What counters say of the passes of a run: without nodes, without drafts, host time, latencies.

Pure. Leaves reading counters to `sides`.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.sides.services import Counts
from outrider.cli.top import difference
from outrider.client import Counters
from outrider.contract.counters import GROWTH_LATENCY_BOUNDS


@dataclass(frozen=True, slots=True)
class Latency:
    """Times from a commit to the first growth that knows it."""

    median_ms: float
    p99_ms: float
    n: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What the counters of one side say of its passes."""

    blind_share: float
    """Of verify passes: no node was there."""
    resting_share: float
    """Of verify passes: the switch was off."""
    host_ms_per_pass: float
    """Of the target's engine, between passes and not waiting; where target and draft share a loop,
    of both, by passes of the target."""
    draft_host_ms_per_pass: float | None
    """Of a draft's engine, by its own passes; None where there is no such engine."""
    draft_passes_per_pass: float | None
    """Passes of the drafts for each of the target's; None where they are not counted."""
    growth_latency: Latency | None
    """None if there was no growth."""


def counted(counts: Sequence[Counts]) -> Counted:
    """Sum up the counters of several runs of one side, in which there were passes."""
    target = total(one.target for one in counts)
    drafts = total(draft for one in counts for draft in one.drafts)
    return Counted(
        blind_share=target.blind_passes / target.passes,
        resting_share=target.resting_passes / target.passes,
        host_ms_per_pass=1e3 * target.host_seconds / target.steps,
        draft_host_ms_per_pass=1e3 * drafts.host_seconds / drafts.passes if drafts.passes else None,
        draft_passes_per_pass=drafts.passes / target.passes if drafts.passes else None,
        growth_latency=latency(target.growth_latencies),
    )


def total(counters: Iterable[Counters]) -> Counters:
    """Add up counters field by field."""
    found = Counters()
    for one in counters:
        found = difference(difference(one, Counters()), found)  # less minus one
    return found


def latency(counts: Sequence[int]) -> Latency | None:
    """Return median and 99th percentile of a histogram; None of one that holds nothing."""
    if sum(counts) == 0:
        return None
    return Latency(1e3 * quantile(counts, 0.5), 1e3 * quantile(counts, 0.99), sum(counts))


def quantile(counts: Sequence[int], share: float) -> float:
    """Return the value below which a share of a histogram lies, in seconds.

    Values are taken as evenly spread over their bucket, as Prometheus' histogram_quantile does;
    those beyond the last bound count as that bound.
    """
    wanted, below = share * sum(counts), 0
    bounds = itertools.pairwise((0.0, *GROWTH_LATENCY_BOUNDS))
    for (low, high), count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below += count
    return GROWTH_LATENCY_BOUNDS[-1]
