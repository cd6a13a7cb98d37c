"""Requests that wait for KV: by priority, then by arrival; those put back keep their place.

Leaves giving KV to the scheduler, and refusing requests to the server process.
"""

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.worker.target.sequence import Sequence


@dataclass(slots=True)
class WaitingQueue:
    """A queue."""

    _queue: list[Sequence] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._queue)

    def first(self, ready: Callable[[str], bool]) -> Sequence | None:
        """Whose turn it is, among those whose grammar is `ready`."""
        return next((s for s in self._queue if s.started or ready(s.submit.grammar)), None)

    def put(self, sequence: Sequence) -> None:
        """Adds a request, or one that had to give its KV back."""
        bisect.insort(self._queue, sequence, key=priority_key)

    def take(self, sequence: Sequence) -> None:
        """Removes one that starts."""
        self._queue.remove(sequence)

    def remove(self, request: int) -> Sequence | None:
        """Removes one by its number; None if it does not wait."""
        for at, sequence in enumerate(self._queue):
            if sequence.submit.request == request:
                return self._queue.pop(at)
        return None

    def expired(self, now: float) -> list[Sequence]:
        """Removes and returns those that waited for their first step for as long as they may."""
        late = [s for s in self._queue if not s.started and now >= s.submit.start_by]
        for sequence in late:
            self._queue.remove(sequence)
        return late


def priority_key(sequence: Sequence) -> tuple[int, float, int]:
    """Who comes first: the higher priority, then who came first."""
    submit = sequence.submit
    return (-submit.priority, submit.arrived, submit.request)
