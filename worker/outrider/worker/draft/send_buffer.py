"""Growth that a draft holds back for a moment, so that several passes travel as one message.

Leaves what may be held, and for how long, to the scheduler.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outrider.worker.link.wire import FromDraft


@dataclass(slots=True)
class SendBuffer:
    """Messages by link, in order."""

    send: Callable[[int, Sequence[FromDraft]], None]
    """Takes a link and messages for it, in order."""
    since: float = 0.0
    """When the oldest one was made."""
    _messages: dict[int, list[FromDraft]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(messages) for messages in self._messages.values())

    def put(self, link: int, message: FromDraft, now: float) -> None:
        """Holds one message."""
        if not self._messages:
            self.since = now
        self._messages.setdefault(link, []).append(message)

    def flush(self) -> None:
        """Sends all, one message a link."""
        for link, messages in self._messages.items():
            self.send(link, messages)
        self._messages.clear()

    def drop(self, link: int) -> None:
        """Forgets what nobody will read."""
        self._messages.pop(link, None)
