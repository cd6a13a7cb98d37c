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
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
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
        if message is not None and self.closed is None:
            self._queue.put(message)
            self._notify()

    def poll(self) -> list[T]:
        """Take what has come; raises `StageLost` once the group has ended."""
        messages: list[T] = []
        with contextlib.suppress(queue.Empty):
            while (message := self._queue.get_nowait()) is not None:
                messages.append(message)
        self._check()
        return messages

    def receive(self, seconds: float | None) -> list[T]:
        """Wait for something to come, then `poll`."""
        self._check()
        try:
            first = self._queue.get(timeout=seconds)
        except queue.Empty:
            return self.poll()
        more = self.poll()
        return more if first is None else [first, *more]

    def close(self, reason: str) -> None:
        """End the group; only the first reason counts."""
        if self.closed is None:
            self.closed = reason
            self._queue.put(None)  # wakes who waits
            self._on_close(reason)
            self._notify()

    def _check(self) -> None:
        if self.closed is not None:
            raise StageLost(self.closed)
