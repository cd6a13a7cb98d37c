"""Records of a pipeline as bytes and back: the same, or a violation that names the field."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import StageDtype
from outrider.protos.v1 import stage_pb2 as pb
from outrider.worker.errors import ProtocolViolation
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.wire.codec import Codec
from tests.unit.worker.pipeline.wire.pipeline_records import (
    HIDDEN,
    RECORDS,
    RESULTS,
    assert_same,
    begin,
    segment,
    segments,
)

EXACT = Codec(StageDtype.FP32, HIDDEN)


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
    assert saved == 3 * HIDDEN * (4 - size)


def test_fp16_cuts_off_what_it_cannot_hold() -> None:
    hidden = np.full((3, HIDDEN), 1e6, np.float32)
    hidden[1] = -1e6
    got = decoded(segment(hidden=hidden), Codec(StageDtype.FP16, HIDDEN))
    assert got.hidden[0, 0] == 65504.0
    assert got.hidden[1, 0] == -65504.0


def broken(**fields: bytes) -> bytes:
    message = pb.StageMessage.FromString(EXACT.encode(segment()))
    for name, value in fields.items():
        setattr(message.segment, name, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (broken(rows=b"\0" * 7), "segment.rows: 7 bytes are no numbers of 8"),
        (broken(slots=b"\0" * 16), "segment.slots: 16 bytes; 3 rows have 12"),
        (broken(tokens=b""), "segment.tokens: 0 bytes; 3 rows have 12"),
        (broken(positions=b"\0" * 11), "segment.positions: 11 bytes; 3 rows have 12"),
        (broken(sequences=b"\0" * 8), "segment.sequences: 8 bytes; 3 rows have 24"),
        (broken(sample=b"\0\0"), "segment.sample: 2 bytes; 3 rows have 1"),
        (broken(ancestors=b"\0" * 7), "segment.ancestors: 7 bytes are no 3 rows"),
        (broken(hidden=b"\0" * 70), "segment.hidden: 70 bytes; 3 rows of 6 fp32 have 72"),
        (broken(visits=b"\0" * 31), "segment.visits: 31 bytes are no numbers of 32"),
        (broken(visits=b"\0" * 288), "segment.visits: 9 visits; 8 are allowed"),
        (broken(visits=b"\xff" * 32), "segment.visits: they must be numbers"),
        (broken(rows=b""), "segment.sample: 1 bytes; 0 rows have 0"),
        (b"\xff\xff", "bytes that are no message"),
        (pb.StageMessage(hello=pb.StageHello()).SerializeToString(), "unexpected message: hello"),
        (
            pb.StageMessage(end=pb.SequenceEnd(sequence=2**63)).SerializeToString(),
            "end.sequence: 9223372036854775808 is larger than 9223372036854775807",
        ),
        (
            pb.StageMessage(move=pb.Move(sources=b"\0" * 8)).SerializeToString(),
            "move.destinations: 0 bytes; 2 rows have 8",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(payload: bytes, problem: str) -> None:
    with pytest.raises(ProtocolViolation, match=f"^{problem}"):
        EXACT.decode(payload)


def test_settings_of_a_request_travel_whole() -> None:
    assert decoded(begin(logprobs=0)).logprobs == 0
    assert decoded(begin(logprobs=None)).logprobs is None
