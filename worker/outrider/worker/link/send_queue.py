"""Bounded queue of messages to one stream's peer.

Nothing is dropped: a peer that leaves too much unread loses its stream. Leaves ending it to the
caller.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Self

from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.rate_limit import UNREAD_BYTES


@dataclass(slots=True)
class SendQueue:
    """A queue of messages; `full` is set, for good, once more than `max_bytes` wait."""

    max_bytes: int = UNREAD_BYTES
    full: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: deque[bytes] = field(default_factory=deque)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _bytes: int = 0

    def put(self, payload: bytes) -> None:
        """Add a message; once the queue is full, free it and take nothing more."""
        if self.full.is_set():
            return
        self._waiting.append(payload)
        self._bytes += len(payload)
        self._arrived.set()
        if self._bytes > self.max_bytes:
            self._waiting.clear()
            self.full.set()

    def __aiter__(self) -> Self:
        """Iterate over it for ever; no generator, for those cannot be closed while they wait."""
        return self

    async def __anext__(self) -> bytes:
        return await self.get()

    async def get(self) -> bytes:
        """Wait for the oldest message and return it; for one reader."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        payload = self._waiting.popleft()
        self._bytes -= len(payload)
        return payload

    def violation(self) -> ProtocolViolation:
        """Return the error of a peer whose queue is full."""
        return ProtocolViolation(f"more than {self.max_bytes} bytes were left unread")
