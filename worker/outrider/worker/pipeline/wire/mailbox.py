"""Mailbox of one party's links: what its streams have read, in order, until its group ends.

The loop of the streams fills it, one thread empties it. Decodes and checks on the way in: what
breaks the rules ends the group, never the process.
"""

import abc
import asyncio
import contextlib
import queue
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from outrider.worker.errors import ProtocolViolation, StageLost

T = TypeVar("T")

UNREAD_BYTES = 1 << 28
"""Most bytes that may wait to be taken, as in a stream's other direction."""
UNREAD_MESSAGES = 1 << 14
"""Likewise."""


class Mailbox(abc.ABC, Generic[T]):
    """Messages that have come to one party of a group."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None] = lambda: None
    ) -> None:
        """`loop` runs the streams; `notify` is called, on any thread, when something has come or
        the group has ended."""
        self._loop = loop
        self._notify = notify
        self._queue: queue.SimpleQueue[tuple[T, int] | None] = queue.SimpleQueue()
        """Messages and their bytes; None: the group has ended."""
        self._put_bytes = self._taken_bytes = 0
        """Each changed by one thread alone."""
        self.closed: str | None = None
        """Reason why the group has ended; None: it lives."""
        self.received_bytes = 0

    @abc.abstractmethod
    def decode(self, payload: bytes) -> T | None:
        """Parse and check a payload; None: a sign of life. Raises `ProtocolViolation`."""

    @abc.abstractmethod
    def end_streams(self, reason: str) -> None:
        """End the streams of a group that has ended; called once, on any thread."""

    def put(self, payload: bytes) -> None:
        """Take a payload from a stream."""
        self.received_bytes += len(payload)
        try:
            message = self.decode(payload)
        except ProtocolViolation as error:
            self.end(f"a message breaks the rules: {error}")
            return
        if message is None or self.closed is not None:
            return
        unread = self._put_bytes - self._taken_bytes
        if unread + len(payload) > UNREAD_BYTES or self._queue.qsize() >= UNREAD_MESSAGES:
            self.end(f"{unread} bytes in {self._queue.qsize()} messages are unread: too many")
            return
        self._put_bytes += len(payload)
        self._queue.put((message, len(payload)))
        self._notify()

    def poll(self) -> list[T]:
        """Take what has come, in order; raises `StageLost` once the group has ended."""
        messages: list[T] = []
        with contextlib.suppress(queue.Empty):
            while (one := self._queue.get_nowait()) is not None:
                messages.append(self._taken(one))
        self._check()
        return messages

    def receive(self, seconds: float | None) -> list[T]:
        """Wait for something to come, at most `seconds` (None: no limit); then `poll`."""
        self._check()
        try:
            first = self._queue.get(timeout=seconds)
        except queue.Empty:
            return self.poll()
        if first is None:
            return self.poll()
        return [self._taken(first), *self.poll()]

    def end(self, reason: str) -> None:
        """End the group; only the first reason counts."""
        if self.closed is None:
            self.closed = reason
            self._queue.put(None)  # wakes who waits
            self.end_streams(reason)
            self._notify()

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the loop of the streams, soon; on any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the group has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _taken(self, one: tuple[T, int]) -> T:
        message, size = one
        self._taken_bytes += size
        return message

    def _check(self) -> None:
        if self.closed is not None:
            raise StageLost(self.closed)
