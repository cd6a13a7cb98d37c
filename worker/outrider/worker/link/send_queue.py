"""What one stream's peer is still to be sent, within a bound (speculation.md).

Nothing is dropped: a peer that leaves too much unread loses its stream. Ending it is the caller's.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from outrider.worker.errors import ProtocolViolation

UNREAD_BYTES = 4 << 20
"""Of messages that wait: a draft at full rate fills it in about 20 s (8 nodes of 12 bytes in half a
millisecond), and a peer that is gone is found out after 15, by keep-alive."""


@dataclass(slots=True)
class SendQueue:
    """A queue of messages; `full` is set once more than `most` bytes wait, or for good."""

    most: int = UNREAD_BYTES
    full: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: deque[bytes] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _bytes: int = 0

    def put(self, payload: bytes) -> None:
        """Adds a message; once the queue is full, frees it and takes nothing more."""
        if self.full.is_set():
            return
        self._waiting.append(payload)
        self._bytes += len(payload)
        self._news.set()
        if self._bytes > self.most:
            self._waiting.clear()
            self.full.set()

    async def get(self) -> bytes:
        """The oldest message, when there is one; for one reader."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        payload = self._waiting.popleft()
        self._bytes -= len(payload)
        return payload

    def violation(self) -> ProtocolViolation:
        """What a peer did that filled the queue."""
        return ProtocolViolation(f"more than {self.most} bytes were left unread")
