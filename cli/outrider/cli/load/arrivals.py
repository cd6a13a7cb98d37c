"""When requests arrive: an endless row of seconds since the start, from a seed.

Waiting for those moments is `drive`'s.
"""

import enum
import itertools
import random
from collections.abc import Iterator


class Arrivals(enum.StrEnum):
    """Distribution of arrivals over time."""

    POISSON = "poisson"
    CONSTANT = "constant"
    BURST = "burst"


def moments(kind: Arrivals, rate: float, burst_size: int, rng: random.Random) -> Iterator[float]:
    """Yield moments of arrival in seconds, never decreasing, `rate` a second in the long run.

    Poisson: independent users, so gaps are exponential. Burst: `burst_size` at once, and as long a
    pause as keeps the rate.
    """
    if kind is Arrivals.BURST:
        return (number // burst_size * (burst_size / rate) for number in itertools.count())
    if kind is Arrivals.CONSTANT:
        return (number / rate for number in itertools.count())
    return itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())
