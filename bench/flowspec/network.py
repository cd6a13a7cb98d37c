"""Virtual time of the simulation, and its links: messages arrive in order, at a rate, delayed."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from bench.flowspec.setting import Links
from outrider.contract.settings import StageDtype
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.wire.codec import Codec

FRAMING = 14
"""Bytes that gRPC (5) and HTTP/2 (9) add to a message."""
Action = Callable[[], None]


class Clock:
    """Time that passes only from one event to the next.

    Events happen in the order of their times, those of one time in the order of asking.
    """

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


class Link:
    """One direction between two parties."""

    def __init__(self, clock: Clock, links: Links, arrive: Callable[[Any], None]) -> None:
        self._clock = clock
        self._links = links
        self._free = 0.0
        """Time at which all that was sent has left."""
        self._arrive = arrive
        self.bytes = 0

    def send(self, message: Any, size: int) -> None:
        """Send a message after all that was sent before."""
        self.bytes += size
        taken = size * 8 / self._links.bits_per_second
        self._free = max(self._free, self._clock.now) + taken
        self._clock.at(self._free + self._links.delay, lambda: self._arrive(message))


class Sizes:
    """Bytes of records, as the wire encodes them with hidden vectors in fp16."""

    def __init__(self, hidden: int) -> None:
        self._codec = Codec(StageDtype.FP16, hidden)
        self._hidden = hidden

    def of(self, record: Record | Results) -> int:
        """Return the bytes of one message; the simulation's own hidden vectors count as real."""
        if not isinstance(record, Segment) or record.hidden is None:
            return FRAMING + len(self._codec.encode(record))
        bare = len(self._codec.encode(record.with_hidden(None)))
        vectors = 2 * self._hidden * record.count
        return FRAMING + bare + vectors
