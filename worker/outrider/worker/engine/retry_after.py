"""Retry-after of a refused request, estimated from the run times of earlier ones.

Leaves refusing to `api.inference`, headers and trailers to each server.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from outrider.worker.messages import Timing

MIN_SECONDS, MAX_SECONDS = 1, 60
WINDOW = 32
"""Requests that the mean is taken over: enough to even out lengths, few enough to follow a load."""


def seconds_until_room(waiting: int, running: int, each: float) -> int:
    """Estimate the whole seconds, 1 to 60, until as many requests as wait now have begun.

    Little's law: `running` at once, of `each` seconds, end at the rate of `running / each`. Where
    none waits, one of those that run has to end.
    """
    seconds = max(1, waiting) * each / max(1, running)
    return min(MAX_SECONDS, max(MIN_SECONDS, math.ceil(seconds)))


@dataclass(slots=True)
class RetryAfter:
    """Run times of the latest requests of an engine."""

    _seconds: "deque[float]" = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Seconds from the first step to the end of each; pauses between requests do not count."""

    def add(self, timing: Timing) -> None:
        """Note the end of a request; one that never ran does not count."""
        if timing.queued_seconds:
            self._seconds.append(timing.total_seconds - timing.queued_seconds)

    def seconds_until_room(self, waiting: int, running: int) -> int:
        """Estimate the seconds, 1 to 60, until one more may find room; 1 if none has ended."""
        return seconds_until_room(
            waiting, running, statistics.fmean(self._seconds) if self._seconds else 0.0
        )
