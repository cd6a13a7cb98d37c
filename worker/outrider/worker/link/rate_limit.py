"""How large and how many messages of one peer may be (speculation.md).

Knows nothing of what the messages say; ending the link is the caller's.
"""

from dataclasses import dataclass
from typing import Self

from outrider.contract.settings import MAX_NODES_AHEAD
from outrider.worker.errors import ProtocolViolation

MIN_BYTES = 1 << 18
"""Of one message, however small the context and however few the sessions are."""
TOKEN_BYTES = 5
"""Most that one token id takes in a message."""
NODE_BYTES = 20
"""Most that one node takes: its parent, its token and its log-probability."""
OTHER_BYTES = 1 << 10
"""What else a message holds: settings, limits, a reason."""
KIBIBYTE = 1024.0
PER_SECOND = 5000.0
"""Messages, and kibibytes of them: an honest draft joins the nodes of short passes."""
BURST = 2000.0


def largest_of_target(context: int) -> int:
    """Bytes of the largest message of a target: Open, with the tokens of a whole context."""
    return max(MIN_BYTES, TOKEN_BYTES * context + OTHER_BYTES)


def largest_of_draft(sessions: int) -> int:
    """Bytes of the largest message of a draft: a batch with all the nodes of every session."""
    return max(MIN_BYTES, (NODE_BYTES * MAX_NODES_AHEAD + OTHER_BYTES) * sessions)


@dataclass(slots=True)
class TokenBucket:
    """A bucket that fills with time; a message takes 1 and its kibibytes."""

    filled_at: float
    largest: int = MIN_BYTES
    """Bytes of one message."""
    beyond: float = 0.0
    """Kibibytes on top of the burst, and of what a second brings: all sessions opened again."""
    left: float = BURST

    @classmethod
    def of_target(cls, now: float, context: int, sessions: int) -> Self:
        """For a target, by what its draft takes: tokens of a sequence, and sequences."""
        beyond = TOKEN_BYTES * context * sessions / KIBIBYTE
        return cls(now, largest_of_target(context), beyond, BURST + beyond)

    @classmethod
    def of_draft(cls, now: float, sessions: int) -> Self:
        """For a draft, by the sequences that its target runs at most."""
        return cls(now, largest_of_draft(sessions))

    def spend(self, size: int, now: float) -> None:
        """Counts one message of `size` bytes; raises `ProtocolViolation` if it is too much."""
        if size > self.largest:
            raise ProtocolViolation(f"a message of {size} bytes; {self.largest} are allowed")
        rate = PER_SECOND + self.beyond
        filled = min(BURST + self.beyond, self.left + rate * (now - self.filled_at))
        self.left = filled - 1 - size / KIBIBYTE
        self.filled_at = now
        if self.left < 0:
            raise ProtocolViolation(f"more than {rate:.0f} messages or kibibytes a second")
