"""What one peer may send: single messages by size, all of them by rate."""

import pytest

from outrider.worker.allowance import BURST, MAX_BYTES, PER_SECOND, Allowance
from outrider.worker.errors import ProtocolViolation


def test_a_message_above_the_limit_is_a_violation() -> None:
    allowance = Allowance(0.0)
    allowance.spend(MAX_BYTES, 0.0)
    with pytest.raises(ProtocolViolation, match=f"{MAX_BYTES + 1} bytes; {MAX_BYTES} are allowed"):
        allowance.spend(MAX_BYTES + 1, 0.0)


def test_a_steady_stream_below_the_rate_is_never_too_much() -> None:
    allowance = Allowance(0.0)
    for number in range(3 * int(BURST)):
        allowance.spend(100, number * 1.2 / PER_SECOND)


def test_a_flood_is_a_violation_after_the_burst() -> None:
    allowance = Allowance(0.0)
    for _ in range(int(BURST)):
        allowance.spend(0, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        allowance.spend(0, 0.0)


def test_large_messages_count_by_their_size() -> None:
    allowance = Allowance(0.0)
    for _ in range(int(BURST * 1024 / MAX_BYTES)):
        allowance.spend(MAX_BYTES - 1024, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        allowance.spend(MAX_BYTES, 0.0)
