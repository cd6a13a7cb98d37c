"""Links of the simulation: messages arrive in order, at a rate and after a delay."""

from collections.abc import Callable
from typing import Any

from bench.flow.clock import Clock
from bench.flow.setting import Links
from outrider.contract.settings import StageDtype
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.wire.codec import Codec

FRAMING = 14
"""Bytes that gRPC (5) and HTTP/2 (9) add to a message."""
LENGTH_OF_HIDDEN = 4
"""Bytes of protobuf's tag and length before the hidden vectors."""


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
        vectors = LENGTH_OF_HIDDEN + 2 * self._hidden * record.count if record.count else 0
        return FRAMING + bare + vectors
