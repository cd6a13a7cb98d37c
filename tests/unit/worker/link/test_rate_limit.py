"""Rate limit of one peer: single messages by size, all of them by number and bytes."""

from collections.abc import Callable

import numpy as np
import pytest

from outrider.contract.settings import MAX_CONTEXT, MAX_NODES_AHEAD
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.payloads import for_draft, for_target
from outrider.worker.link.rate_limit import (
    BURST,
    MIN_BYTES,
    PER_SECOND,
    TokenBucket,
    max_bytes_of_draft,
    max_bytes_of_target,
    tokens_of_record,
)
from outrider.worker.link.wire import Capacity, FromDraft, Grow, Limits, Open
from outrider.worker.sampling.params import MAX_BIASES, SamplingParams
from outrider.worker.tree.growth import Growth


def test_a_message_above_the_limit_is_a_violation() -> None:
    token_bucket = TokenBucket(0.0)
    token_bucket.spend(MIN_BYTES, 0.0)
    with pytest.raises(ProtocolViolation, match=f"{MIN_BYTES + 1} bytes; {MIN_BYTES} are allowed"):
        token_bucket.spend(MIN_BYTES + 1, 0.0)


def test_a_steady_stream_below_the_rate_is_never_too_much() -> None:
    token_bucket = TokenBucket(0.0)
    for number in range(3 * int(BURST)):
        token_bucket.spend(100, number * 1.2 / PER_SECOND)


def test_a_flood_is_a_violation_after_the_burst() -> None:
    token_bucket = TokenBucket(0.0)
    for _ in range(int(BURST)):
        token_bucket.spend(0, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        token_bucket.spend(0, 0.0)


def test_large_messages_count_by_their_size() -> None:
    token_bucket = TokenBucket(0.0)
    for _ in range(int(BURST * 1024 / MIN_BYTES)):
        token_bucket.spend(MIN_BYTES - 1024, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        token_bucket.spend(MIN_BYTES, 0.0)


def whole(context: int) -> int:
    """Bytes of an Open with a whole context and with all settings, of the ids that take most
    room."""
    tokens = np.full(context, 2**31 - 1, np.int32)
    biases = tuple((token, 1.0) for token in range(MAX_BIASES))
    sampling = SamplingParams(
        temperature=0.8,
        seed=2**64 - 1,
        logit_bias=biases,
        late=tuple(range(MAX_BIASES)),
        forbidden=tuple((token,) for token in range(MAX_BIASES)),
        forced=tuple(tokens.tolist()),
    )
    limits = Limits(2**63, 64, 64, 512, 1.5, 10**6)
    (payload,) = for_draft([Open(2**63, tokens, sampling, limits, len(tokens), "00-a-b-01")])
    return len(payload)


@pytest.mark.parametrize("context", [64, 90_000, MAX_CONTEXT])
def test_every_session_may_open_with_a_whole_context_and_again_a_second_later(context: int) -> None:
    size = whole(context)
    assert size <= max_bytes_of_target(context)
    token_bucket = TokenBucket.of_target(0.0, context, sessions=3)
    for now in (0.0, 1.0):
        for _ in range(3):
            token_bucket.spend(size, now)


def test_a_flood_of_long_opens_is_a_violation() -> None:
    token_bucket = TokenBucket.of_target(0.0, MAX_CONTEXT, sessions=3)
    for _ in range(3):
        token_bucket.spend(whole(MAX_CONTEXT), 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        token_bucket.spend(whole(MAX_CONTEXT), 0.0)


@pytest.mark.parametrize("sessions", [1, 100])
def test_a_draft_may_send_all_nodes_of_every_session_at_once(sessions: int) -> None:
    ids = np.full(MAX_NODES_AHEAD, 2**62)
    tokens = np.full(MAX_NODES_AHEAD, 2**31 - 1, np.int32)
    logprobs = np.zeros(MAX_NODES_AHEAD, np.float32)
    grow = Grow(2**63, Growth(2**30, 2**62, ids, tokens, logprobs))
    parts: list[FromDraft] = [grow, Capacity(9, 9)]
    size = len(for_target(parts * sessions))
    assert size <= max_bytes_of_draft(sessions)
    TokenBucket.of_draft(0.0, sessions).spend(size, 0.0)


@pytest.mark.parametrize(
    "of", [TokenBucket.of_draft, lambda now, n: TokenBucket.of_target(now, 64, n)]
)
def test_64_sessions_at_200_steps_a_second_are_honest_whatever_carries_them(
    of: Callable[[float, int], TokenBucket],
) -> None:
    memory, stream = of(0.0, 64), of(0.0, 64)
    for step in range(3 * 200):
        for _ in range(64):
            memory.spend_record(200, step / 200)
        stream.spend(64 * 200, step / 200)
        stream.spend_records(64, step / 200)


def test_a_flood_of_small_records_is_a_violation_whatever_carries_them() -> None:
    allowed = int(BURST / tokens_of_record(64))
    memory, stream = TokenBucket.of_draft(0.0, 64), TokenBucket.of_draft(0.0, 64)
    for _ in range(allowed // 3):
        memory.spend_record(40, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        [memory.spend_record(40, 0.0) for _ in range(allowed)]
    stream.spend(40 * 1000, 0.0)
    stream.spend_records(1000, 0.0)
    with pytest.raises(ProtocolViolation, match="a second"):
        stream.spend_records(allowed, 0.0)
