"""Pace of a simulated machine: it does other things too, and passes take longer for a while."""

import math

import numpy as np

PACE_SECONDS = 4.0
"""For which a machine keeps its pace. On a shared host, seconds of plain decoding varied nearly as
much over answers of 2.3 s as over those of 0.5 s (7 and 9 %)."""


class Pace:
    """Seconds of passes over their mean, by virtual time; the same for each run of a seed."""

    def __init__(self, variation: float, *seed: int) -> None:
        """`variation`: deviation over the mean; the factors are lognormal."""
        self._deviation = math.sqrt(math.log1p(variation**2))
        self._seed = seed
        self._period = -1
        self._factor = 1.0

    def at(self, now: float) -> float:
        """Return the factor of passes that begin now."""
        period = int(now / PACE_SECONDS)
        if period != self._period and self._deviation:
            drawn = np.random.default_rng([*self._seed, period]).standard_normal()
            self._factor = math.exp(self._deviation * (drawn - self._deviation / 2))
        self._period = period
        return self._factor
