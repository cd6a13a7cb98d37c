"""Records of a pipeline as bytes and back: the same, or a violation that names the field."""

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import StageDtype
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.records import ALIGNMENT, HEADER
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.wire.codec import END, MOVE, SEGMENT, Codec
from tests.unit.worker.pipeline.wire.pipeline_records import (
    HIDDEN,
    RECORDS,
    RESULTS,
    assert_same,
    begin,
    move,
    segment,
    segments,
)

EXACT = Codec(StageDtype.FP32, HIDDEN)
OTHER_LINKS = 1
"""A kind of record."""


def decoded(record: Record | Results, codec: Codec = EXACT) -> Any:
    return codec.decode(codec.encode(record))


@given(RECORDS | RESULTS | segments(with_hidden=True))
def test_what_is_written_is_read_back(record: Record | Results) -> None:
    assert_same(record, decoded(record))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_violation(payload: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        EXACT.decode(payload)


def test_nothing_is_a_sign_of_life() -> None:
    assert EXACT.decode(b"") is None


@pytest.mark.parametrize(
    ("form", "bits", "size"), [(StageDtype.BF16, 8, 2), (StageDtype.FP16, 11, 2)]
)
def test_a_short_format_rounds_hidden_states(form: StageDtype, bits: int, size: int) -> None:
    hidden = np.random.default_rng(0).standard_normal((3, HIDDEN), np.float32) * 100
    codec = Codec(form, HIDDEN)
    sent = segment(hidden=hidden)
    got: Segment = decoded(sent, codec)
    assert got.hidden is not None
    error = np.abs(got.hidden - hidden) / np.abs(hidden)
    assert 0 < error.max() <= 2.0**-bits
    saved = len(EXACT.encode(sent)) - len(codec.encode(sent))
    assert abs(saved - 3 * HIDDEN * (4 - size)) < ALIGNMENT


def test_fp16_cuts_off_what_it_cannot_hold() -> None:
    hidden = np.full((3, HIDDEN), 1e6, np.float32)
    hidden[1] = -1e6
    got = decoded(segment(hidden=hidden), Codec(StageDtype.FP16, HIDDEN))
    assert got.hidden[0, 0] == 65504.0
    assert got.hidden[1, 0] == -65504.0


def payload_of(kind: int, body: bytes) -> bytes:
    records = HEADER.pack(len(body), 0, kind, 0, 0.0) + body + bytes(-len(body) % ALIGNMENT)
    return pb.StageMessage(records=records).SerializeToString()


def body_of(record: Record | Results) -> bytes:
    return EXACT.payloads.kinds.body(record)[1]


def changed(record: Record | Results, at: int, *values: int) -> bytes:
    """The body of a record, with other counts from an offset on."""
    body = bytearray(body_of(record))
    struct.pack_into(f"<{len(values)}I", body, at, *values)
    return bytes(body)


WITH_HIDDEN = segment(hidden=np.ones((3, HIDDEN), np.float32))
NOT_A_NUMBER = segment(visits=np.full((1, 4), np.nan))


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (payload_of(SEGMENT, body_of(segment())[:-1]), "its counts say more"),
        (payload_of(SEGMENT, body_of(segment()) + b"\0"), "its counts say less"),
        (payload_of(SEGMENT, changed(segment(), 8, 4)), "its counts say more"),
        (payload_of(SEGMENT, changed(segment(), 8, 2**32 - 1, 2**32 - 1)), "its counts say more"),
        (
            payload_of(SEGMENT, changed(WITH_HIDDEN, 16, 70)),
            "segment.hidden: 70 bytes; 3 rows of 6 fp32 have 72",
        ),
        (payload_of(SEGMENT, changed(segment(), 20, 9)), "segment.visits: 9 visits; 8 are allowed"),
        (EXACT.encode(NOT_A_NUMBER), "segment.visits: they must be numbers"),
        (payload_of(MOVE, changed(move(), 8, 2)), "its counts say more"),
        (
            payload_of(END, bytes(7) + b"\x80"),
            "end.sequence: 9223372036854775808 is larger than 9223372036854775807",
        ),
        (payload_of(OTHER_LINKS, b""), "no such record goes this way"),
        (EXACT.payloads.written([begin(), move()]), "a payload that holds not one record"),
        (pb.StageMessage(records=b"").SerializeToString(), "a payload that holds not one record"),
        (b"\xff\xff", "bytes that are no message"),
        (pb.StageMessage(hello=pb.StageHello()).SerializeToString(), "unexpected message: hello"),
    ],
)
def test_what_does_not_fit_together_is_named(payload: bytes, problem: str) -> None:
    with pytest.raises(ProtocolViolation, match=problem):
        EXACT.decode(payload)


def test_settings_of_a_request_travel_whole() -> None:
    assert decoded(begin(logprobs=0)).logprobs == 0
    assert decoded(begin(logprobs=None)).logprobs is None
