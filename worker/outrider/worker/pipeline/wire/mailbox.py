"""Mailbox of one party: what its transport has read, in order, until its group ends.

The transport's threads fill it, one thread empties it. Decodes and checks on the way in: what
breaks the rules ends the group, never the process.
"""

import contextlib
import queue
from collections.abc import Callable
from typing import Generic, TypeVar

from outrider.worker.errors import ProtocolViolation, StageLost

T = TypeVar("T")

UNREAD_BYTES = 1 << 28
"""That may wait to be taken, as in a stream's other direction."""
UNREAD_MESSAGES = 1 << 14
"""Likewise."""


class Mailbox(Generic[T]):
    """Messages that have come."""

    def __init__(
        self,
        decode: Callable[[bytes], T | None],
        on_close: Callable[[str], None],
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        """`decode` raises `ProtocolViolation`, and returns None for a sign of life.

        `on_close` is called once, with the reason; `notify` when something has come or the group
        has ended. Both may be called on any thread.
        """
        self._decode = decode
        self._on_close = on_close
        self._notify = notify
        self._queue: queue.SimpleQueue[tuple[T, int] | None] = queue.SimpleQueue()
        """Messages and their bytes; None: the group has ended."""
        self._put_bytes = self._taken_bytes = 0
        """Each changed by one thread alone."""
        self.closed: str | None = None
        self.bytes = 0
        """Received."""

    def put(self, payload: bytes) -> None:
        """Take a payload from the transport."""
        self.bytes += len(payload)
        try:
            message = self._decode(payload)
        except ProtocolViolation as error:
            self.close(f"a message breaks the rules: {error}")
            return
        if message is None or self.closed is not None:
            return
        unread = self._put_bytes - self._taken_bytes
        if unread + len(payload) > UNREAD_BYTES or self._queue.qsize() >= UNREAD_MESSAGES:
            self.close(f"{unread} bytes in {self._queue.qsize()} messages are unread: too many")
            return
        self._put_bytes += len(payload)
        self._queue.put((message, len(payload)))
        self._notify()

    def poll(self) -> list[T]:
        """Take what has come; raises `StageLost` once the group has ended."""
        messages: list[T] = []
        with contextlib.suppress(queue.Empty):
            while (one := self._queue.get_nowait()) is not None:
                messages.append(self._taken(one))
        self._check()
        return messages

    def receive(self, seconds: float | None) -> list[T]:
        """Wait for something to come, then `poll`."""
        self._check()
        try:
            first = self._queue.get(timeout=seconds)
        except queue.Empty:
            return self.poll()
        if first is None:
            return self.poll()
        return [self._taken(first), *self.poll()]

    def close(self, reason: str) -> None:
        """End the group; only the first reason counts."""
        if self.closed is None:
            self.closed = reason
            self._queue.put(None)  # wakes who waits
            self._on_close(reason)
            self._notify()

    def _taken(self, one: tuple[T, int]) -> T:
        message, size = one
        self._taken_bytes += size
        return message

    def _check(self) -> None:
        if self.closed is not None:
            raise StageLost(self.closed)
