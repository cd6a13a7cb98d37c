"""Virtual clock: events in the order of their times, those of one time in the order of asking."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Clock:
    """Time that passes only from one event to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._events: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time: float, action: Action) -> None:
        """Let something happen at a time, which is not before now."""
        heapq.heappush(self._events, (max(time, self.now), next(self._order), action))

    def after(self, seconds: float, action: Action) -> None:
        """Let something happen later."""
        self.at(self.now + seconds, action)

    def run(self, until: Callable[[], bool]) -> None:
        """Let events happen until `until`; raises `RuntimeError` where none is left before."""
        while not until():
            if not self._events:
                raise RuntimeError(f"nothing happens after {self.now:.3f} s")
            self.now, _, action = heapq.heappop(self._events)
            action()
