"""Limits of one peer: a token bucket over number and bytes of payloads and records, unread bytes.

Does not read the messages; leaves ending the link to the caller.
"""

from dataclasses import dataclass
from typing import Self

from outrider.contract.settings import MAX_NODES_AHEAD
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.draft_records import NODE_BYTES
from outrider.worker.link.records import BIAS_BYTES
from outrider.worker.sampling.params import MAX_BIASES

MIN_BYTES = 1 << 18
"""Allowed for one message, however small the context and however few the sessions are."""
ID_BYTES = 4
TOKEN_BYTES = 2 * ID_BYTES
"""Bytes of an Open for each token of a context: most may be forced besides."""
OTHER_IDS = 3
"""Numbers beside those with a bias: late ones, those of forbidden sequences, and their ends."""
OTHER_BYTES = 1 << 10
"""The rest of a record: fixed fields, a traceparent, a reason."""
KIBIBYTE = 1024.0
PER_SECOND = 5000.0
"""Payloads, and kibibytes of them: an honest draft joins the nodes of short passes."""
RECORDS_PER_SECOND = 1000.0
"""Records a second that each session may send besides `PER_SECOND`: one for each step of 1 ms."""
BURST = 2000.0
UNREAD_BYTES = 4 << 20
"""Most bytes of messages that wait: a draft at full rate fills it in about 20 s (8 nodes of 12
bytes in half a millisecond), and a peer that is gone is found out after 15, by keep-alive."""


def max_bytes_of_target(context: int) -> int:
    """Return the bytes of a target's largest message: Open, with a whole context of tokens, and as
    many biases and other tokens as a request may have."""
    settings = (BIAS_BYTES + OTHER_IDS * ID_BYTES) * MAX_BIASES
    return max(MIN_BYTES, TOKEN_BYTES * context + settings + OTHER_BYTES)


def max_bytes_of_draft(sessions: int) -> int:
    """Return the bytes of a draft's largest message: a batch with all nodes of every session."""
    return max(MIN_BYTES, (NODE_BYTES * MAX_NODES_AHEAD + OTHER_BYTES) * sessions)


def max_unread_bytes(context: int, sessions: int) -> int:
    """Return the bytes that may wait for a draft: all sequences of its target may be opened at
    once."""
    return UNREAD_BYTES + TOKEN_BYTES * context * sessions


@dataclass(slots=True)
class TokenBucket:
    """A token bucket that fills with time.

    A payload takes 1 token and its kibibytes. A record, of which a step brings one or two for each
    session, takes less the more sessions there may be.
    """

    filled_at: float
    max_bytes: int = MIN_BYTES
    """Most bytes of one payload or record."""
    extra: float = 0.0
    """Tokens on top of the burst, and of each second's: all sessions opened again."""
    tokens: float = BURST
    record: float = 1.0
    """Tokens of one record, without its kibibytes."""

    @classmethod
    def of_target(cls, now: float, context: int, sessions: int) -> Self:
        """Return the bucket of a target, by its draft's context and number of sessions."""
        extra = TOKEN_BYTES * context * sessions / KIBIBYTE
        record = tokens_of_record(sessions)
        return cls(now, max_bytes_of_target(context), extra, BURST + extra, record)

    @classmethod
    def of_draft(cls, now: float, sessions: int) -> Self:
        """Return the bucket of a draft, by the sequences that its target runs at most."""
        return cls(now, max_bytes_of_draft(sessions), record=tokens_of_record(sessions))

    def spend(self, size: int, now: float) -> None:
        """Take the tokens of a payload of `size` bytes; raise `ProtocolViolation` if too many."""
        self._check(size)
        self._take(1 + size / KIBIBYTE, now)

    def spend_record(self, size: int, now: float) -> None:
        """Take those of a record of `size` bytes that came in no payload; raises likewise."""
        self._check(size)
        self._take(self.record + size / KIBIBYTE, now)

    def spend_records(self, count: int, now: float) -> None:
        """Take those of `count` messages of a payload that was spent; raises likewise.

        The first is in the payload's token.
        """
        self._take(max(count - 1, 0) * self.record, now)

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            raise ProtocolViolation(f"a message of {size} bytes; {self.max_bytes} are allowed")

    def _take(self, tokens: float, now: float) -> None:
        rate = PER_SECOND + self.extra
        filled = min(BURST + self.extra, self.tokens + rate * (now - self.filled_at))
        self.tokens = filled - tokens
        self.filled_at = now
        if self.tokens < 0:
            raise ProtocolViolation(f"more than {rate:.0f} messages or kibibytes a second")


def tokens_of_record(sessions: int) -> float:
    """Return the tokens of one record, of which each session may send `RECORDS_PER_SECOND`."""
    return PER_SECOND / (PER_SECOND + RECORDS_PER_SECOND * sessions)
