"""Virtual time: a heap of what happens when.

Things of one moment happen in the order in which they were put in, so a run follows from its seed.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Clock:
    """Seconds since the start of a simulation, and all that is still to come."""

    now: float = 0.0
    events: int = 0
    """Number of events that have happened."""
    _heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )
    _number: int = 0

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time; at once, after all else of this moment, if that has passed."""
        self._number += 1
        heapq.heappush(self._heap, (max(when, self.now), self._number, action, arguments))

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something so many seconds from now."""
        self.at(self.now + seconds, action, *arguments)

    def run(self, until: float) -> None:
        """Let everything happen up to a time, which is the time then."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(heap)
            self.events += 1
            action(*arguments)
        self.now = max(self.now, until)
