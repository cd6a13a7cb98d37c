"""Mean and percentiles of weighted figures; plain arithmetic."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of a figure over requests or tokens."""

    mean: float
    p50: float
    p90: float
    p99: float
    n: int
    """Observations; an inter-token latency is one for each chunk of an answer."""


def spread(values: Iterable[float]) -> Spread | None:
    """Of figures that count alike; None if there are none."""
    return weighted((value, 1.0) for value in values)


def weighted(values: Iterable[tuple[float, float]]) -> Spread | None:
    """Of (figure, weight); weights are above 0. None if there are none."""
    known = sorted(values)
    if not known:
        return None
    total = math.fsum(weight for _, weight in known)
    mean = math.fsum(value * weight for value, weight in known) / total
    mean = min(max(mean, known[0][0]), known[-1][0])
    p50, p90, p99 = (_percentile(known, share) for share in (0.5, 0.9, 0.99))
    return Spread(mean, p50, p90, p99, len(known))


def percentile(values: Iterable[tuple[float, float]], share: float) -> float:
    """The least figure that at least this share of the weight does not exceed."""
    return _percentile(sorted(values), share)


def _percentile(known: Sequence[tuple[float, float]], share: float) -> float:
    wanted = share * math.fsum(weight for _, weight in known)
    reached = 0.0
    for value, weight in known:
        reached += weight
        if reached >= wanted * (1 - 1e-12):
            return value
    return known[-1][0]
