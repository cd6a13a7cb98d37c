"""How soon there may be room for a request that is refused, by how long others have run.

Leaves refusing to `inference_service`, and the words for it to each server.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from outrider.worker.messages import Timing

MIN_SECONDS, MAX_SECONDS = 1, 60
REMEMBERED = 32
"""Requests that the mean is taken over: enough to even out lengths, few enough to follow a load."""


def seconds_until_room(waiting: int, running: int, each: float) -> int:
    """Whole seconds, 1 to 60, until as many as wait now have begun.

    Little's law: `running` at once, of `each` seconds, end at the rate of `running / each`. Where
    nobody waits, one of those that run has to end.
    """
    seconds = max(1, waiting) * each / max(1, running)
    return min(MAX_SECONDS, max(MIN_SECONDS, math.ceil(seconds)))


@dataclass(slots=True)
class RetryAfter:
    """How long the latest requests of an engine have run."""

    _ran: "deque[float]" = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Seconds from the first step to the end; pauses between requests do not count."""

    def ended(self, timing: Timing) -> None:
        """A request ended; one that never ran says nothing."""
        if timing.queued_seconds:
            self._ran.append(timing.total_seconds - timing.queued_seconds)

    def seconds_until_room(self, waiting: int, running: int) -> int:
        """Whole seconds, 1 to 60, after which one more may find room; 1 if nothing is known."""
        return seconds_until_room(
            waiting, running, statistics.fmean(self._ran) if self._ran else 0.0
        )
