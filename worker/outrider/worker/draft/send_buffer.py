"""Messages that a draft buffers for a moment, so that several passes travel as one of gRPC.

Leaves to the scheduler which growth may wait for more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outrider.worker.link.wire import FromDraft

MAX_BUFFER_SECONDS = 0.002
"""Longest that growth is buffered: a message of gRPC costs each side about 150 µs of processor time
whatever its size (Zen 5, grpcio 1.85). One through shared memory costs a few, and never waits."""


@dataclass(slots=True)
class SendBuffer:
    """Messages by link, in order."""

    send: Callable[[int, Sequence[FromDraft]], None]
    """Takes a link and messages for it, in order."""
    coalesce: bool = True
    """Several passes may travel as one message of gRPC; false: each is sent at once."""
    is_direct: Callable[[int], bool] = lambda link: False
    """True for a link on which a message costs a few µs: what is for it is not buffered."""
    since: float = 0.0
    """Time of the oldest message."""
    _messages: dict[int, list[FromDraft]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(messages) for messages in self._messages.values())

    def put(self, link: int, message: FromDraft, now: float) -> None:
        """Add one message, or send it if its link is direct."""
        if self.is_direct(link):
            self.send(link, (message,))
            return
        if not self._messages:
            self.since = now
        self._messages.setdefault(link, []).append(message)

    def is_late(self, then: float) -> bool:
        """True if what is buffered must be sent before `then`."""
        return not self.coalesce or then - self.since > MAX_BUFFER_SECONDS

    def flush(self) -> None:
        """Send all, one message a link."""
        for link, messages in self._messages.items():
            self.send(link, messages)
        self._messages.clear()

    def drop(self, link: int) -> None:
        """Drop the messages of a link that has ended."""
        self._messages.pop(link, None)
