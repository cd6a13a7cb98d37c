"""How large and how many messages of one peer may be (PROTOCOL.md §1, Hostile or broken peer).

Knows nothing of what the messages say; ending the link is the caller's.
"""

from dataclasses import dataclass

from outrider.worker.errors import ProtocolViolation

MAX_BYTES = 1 << 18
"""Of one message: the nodes that a draft may hold for a dozen sessions take less."""
KIBIBYTE = 1024.0
PER_SECOND = 5000.0
"""Messages, and kibibytes of them: an honest draft joins the nodes of short passes."""
BURST = 2000.0


@dataclass(slots=True)
class Allowance:
    """A bucket that fills with time; a message takes 1 and its kibibytes."""

    filled_at: float
    left: float = BURST

    def spend(self, size: int, now: float) -> None:
        """Counts one message of `size` bytes; raises `ProtocolViolation` if it is too much."""
        if size > MAX_BYTES:
            raise ProtocolViolation(f"a message of {size} bytes; {MAX_BYTES} are allowed")
        filled = min(BURST, self.left + PER_SECOND * (now - self.filled_at))
        self.left = filled - 1 - size / KIBIBYTE
        self.filled_at = now
        if self.left < 0:
            raise ProtocolViolation(f"more than {PER_SECOND:.0f} messages or kibibytes a second")
