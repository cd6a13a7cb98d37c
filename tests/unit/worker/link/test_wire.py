"""Messages of the link survive their bytes; growth that follows on becomes one message."""

import dataclasses

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.codec import (
    decode_from_draft,
    decode_from_target,
    encode_for_draft,
    encode_for_target,
)
from outrider.worker.link.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth

TOKENS = np.array([1, 2, 3], np.int32)
PENALISED = SamplingParams(
    choice=3,
    frequency_penalty=0.5,
    presence_penalty=-1.25,
    repetition_penalty=1.5,
    logit_bias=((0, -100.0), (5, 0.25)),
)
LIMITS = Limits(7, depth=9, width=3, nodes_ahead=24, error_scale=1.5, link_lag_micros=400)


def plain(message: object) -> list[object]:
    """Fields that can be compared."""
    assert dataclasses.is_dataclass(message)
    values = [getattr(message, f.name) for f in dataclasses.fields(message)]
    if isinstance(message, Grow):
        values = [message.session, *message.growth]
    return [v.tolist() if isinstance(v, np.ndarray) else v for v in values]


def grow(first_id: int, count: int, session: int = 7, root: int = 40) -> Grow:
    ids = np.arange(first_id, first_id + count)
    parents, tokens = (ids - 1).astype(np.int64), (ids * 3).astype(np.int32)
    return Grow(session, Growth(root, first_id, parents, tokens, (-ids / 8).astype(np.float32)))


@pytest.mark.parametrize(
    "message",
    [
        Open(7, TOKENS, SamplingParams(temperature=0.5, seed=2**64 - 1), LIMITS, prompt=3),
        Open(7, TOKENS, PENALISED, LIMITS, prompt=1),
        Open(7, TOKENS, PENALISED, LIMITS, prompt=1, traceparent="00-a-b-01"),
        Commit(7, 41, np.array([5, 6], np.int32)),
        LIMITS,
        Close(7, CloseReason.TOO_LONG, "64 tokens fit"),
    ],
)
def test_what_a_target_says_is_what_a_draft_hears(message: FromTarget) -> None:
    heard = decode_from_target(encode_for_draft(message))
    assert type(heard) is type(message)
    assert plain(heard) == plain(message)


@pytest.mark.parametrize(
    "message", [grow(1, 4), Capacity(2, 8192), Close(7, CloseReason.DRAINING, "bye")]
)
def test_what_a_draft_says_is_what_a_target_hears(message: FromDraft) -> None:
    (heard,) = decode_from_draft(encode_for_target([message]))
    assert type(heard) is type(message)
    assert plain(heard) == plain(message)


def test_growth_that_follows_on_travels_as_one() -> None:
    (heard,) = decode_from_draft(encode_for_target([grow(1, 4), grow(5, 8), grow(13, 2)]))
    assert plain(heard) == plain(grow(1, 14))


@pytest.mark.parametrize(
    "other", [grow(6, 2), grow(5, 2, session=8), grow(5, 2, root=41), Capacity(1, 1)]
)
def test_other_messages_keep_their_own(other: FromDraft) -> None:
    heard = decode_from_draft(encode_for_target([grow(1, 4), other, grow(7, 1)]))
    assert [plain(m) for m in heard] == [plain(m) for m in (grow(1, 4), other, grow(7, 1))]


@pytest.mark.parametrize("payload", [b"\xff garbage", b""])
def test_bytes_that_are_no_message_are_a_violation(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_from_draft(payload)
    with pytest.raises(ProtocolViolation):
        decode_from_target(payload)
