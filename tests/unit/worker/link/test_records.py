"""Records survive their bytes, however these are cut, and bytes that are no records are refused."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.errors import LinkBroken
from outrider.worker.link import draft_records
from outrider.worker.link.draft_records import FROM_DRAFT, FROM_TARGET
from outrider.worker.link.records import ALIGNMENT, HEADER, RecordReader, RecordWriter
from outrider.worker.link.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    Grow,
    Limits,
    Open,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth
from tests.unit.worker.link.test_wire import plain

MAX_BYTES = 1 << 16
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
tokens = st.lists(st.integers(0, 2**31 - 1), max_size=40).map(lambda t: np.array(t, np.int32))
reasons = st.sampled_from(CloseReason)
floats = st.floats(width=32, allow_nan=False)
closes = st.builds(Close, u64, reasons, st.text(max_size=9))
limits = st.builds(Limits, u64, u32, u32, u32, floats, u32)


@st.composite
def grows(draw: st.DrawFn) -> Grow:
    count = draw(st.integers(0, 40))

    def array(values: st.SearchStrategy[Any], dtype: type) -> Any:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype)

    growth = Growth(
        draw(u32),
        draw(st.integers(-(2**63), 2**63 - 1)),
        array(st.integers(-(2**63), 2**63 - 1), np.int64),
        array(st.integers(-(2**31), 2**31 - 1), np.int32),
        array(floats, np.float32),
    )
    return Grow(draw(u64), growth)


opens = st.builds(
    Open,
    u64,
    tokens,
    st.builds(
        SamplingParams,
        *(floats, u32, floats, floats, u64, u32, floats, floats, floats),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), floats), max_size=5).map(tuple),
    ),
    limits,
    u32,
    st.text(max_size=55),
)
of_target = st.lists(st.one_of(opens, st.builds(Commit, u64, u32, tokens), limits, closes))
of_draft = st.lists(st.one_of(grows(), st.builds(Capacity, u32, u64), closes))
cuts = st.lists(st.integers(1, 200), min_size=1)


def from_draft() -> RecordReader:
    return RecordReader(FROM_DRAFT, MAX_BYTES)


def read_in_pieces(reader: RecordReader, data: bytes, sizes: Sequence[int]) -> list[Any]:
    """What a reader makes of bytes that come in pieces of these sizes, over and over."""
    found, start, turn = [], 0, 0
    while start < len(data):
        end = start + sizes[turn % len(sizes)]
        found += list(reader.read(bytearray(data[start:end])))
        start, turn = end, turn + 1
    return found


@given(of_target, cuts)
def test_a_target_s_messages_survive_their_records(messages: list[Any], sizes: list[int]) -> None:
    data = RecordWriter(FROM_TARGET).write(messages, 5.0)
    reader = RecordReader(FROM_TARGET, MAX_BYTES)
    read = read_in_pieces(reader, data, sizes)
    assert [plain(message) for message, _, _ in read] == [plain(m) for m in messages]
    assert sum(size for _, size, _ in read) == len(data)


@given(of_draft, cuts)
def test_a_draft_s_messages_survive_their_records(messages: list[Any], sizes: list[int]) -> None:
    data = RecordWriter(FROM_DRAFT).write(messages, 5.0)
    read = read_in_pieces(from_draft(), data, sizes)
    assert [plain(message) for message, _, _ in read] == [plain(m) for m in messages]
    assert all(at == 5.0 for _, _, at in read)


def test_arrays_of_growth_can_be_used_by_compiled_code_as_they_are() -> None:
    one, two = (Grow(1, Growth(4, i, *arrays(3))) for i in (1, 4))
    data = RecordWriter(FROM_DRAFT).write([one, two], 0.0)
    for message, _, _ in from_draft().read(bytearray(data)):
        for array in message.growth[2:]:
            assert array.flags.aligned
            assert array.flags.writeable
            assert array.flags.c_contiguous


@given(st.binary(max_size=300))
def test_no_bytes_end_a_reader_otherwise_than_by_its_own_error(data: bytes) -> None:
    for message in (FROM_DRAFT, FROM_TARGET):
        reader = RecordReader(message, MAX_BYTES)
        with contextlib.suppress(LinkBroken):
            list(reader.read(bytearray(data)))


@given(of_draft.filter(bool), st.data())
def test_no_changed_byte_ends_a_reader_otherwise(messages: list[Any], data: st.DataObject) -> None:
    sent = bytearray(RecordWriter(FROM_DRAFT).write(messages, 5.0))
    sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(LinkBroken):
        for message, _, _ in from_draft().read(sent):
            assert isinstance(message, Grow | Capacity | Close)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        (5, bytes(3), "kind 5 with a body of 3 bytes: its counts say more"),
        (5, draft_records._GROW.pack(1, 2, 2, 3) + bytes(16), "kind 5 with a body of 40 bytes"),
        (5, draft_records._GROW.pack(1, 2, 2**32 - 1, 3), "kind 5 with a body of 24 bytes"),
        (6, bytes(15), "kind 6 with a body of 15 bytes"),
        (6, bytes(17), "kind 6 with a body of 17 bytes: its counts say less"),
        (2, bytes(16), "kind 2 with a body"),
        (3, bytes(28), "kind 3 with a body"),
        (1, bytes(92), "kind 1 with a body"),
        (4, draft_records._CLOSE.pack(1, 1, 3) + b"hi", "kind 4 with a body of 18 bytes"),
        (4, draft_records._CLOSE.pack(1, 1, 1) + b"\xff", "no UTF-8"),
        (77, b"", "kind 77"),
    ],
)
def test_a_body_that_is_no_message_is_refused(kind: int, body: bytes, says: str) -> None:
    with pytest.raises(LinkBroken, match=says):
        list(from_draft().read(record(kind, body)))


def test_a_target_is_sent_no_growth() -> None:
    reader = RecordReader(FROM_TARGET, MAX_BYTES)
    with pytest.raises(LinkBroken, match="kind 5 with a body of 24"):
        list(reader.read(record(5, draft_records._GROW.pack(1, 2, 0, 1))))


def test_an_open_whose_counts_do_not_fit_is_refused() -> None:
    sent = Open(1, np.arange(3, dtype=np.int32), SamplingParams(), Limits(1, 8, 4, 32, 1.0), 3)
    kind, body = FROM_TARGET.body(sent)
    reader = RecordReader(FROM_TARGET, MAX_BYTES)
    with pytest.raises(LinkBroken, match="kind 1 with a body of 144 bytes: its counts say more"):
        list(reader.read(record(kind, body[:-4])))


def test_a_reason_that_is_not_known_says_that_rules_were_broken() -> None:
    closing = record(4, draft_records._CLOSE.pack(7, 77, 2) + b"hi")
    ((message, _, _),) = from_draft().read(closing)
    assert message == Close(7, CloseReason.INVALID, "hi")


def test_a_record_out_of_turn_is_refused() -> None:
    data = RecordWriter(FROM_DRAFT).write(2 * [Capacity(1, 2)], 0.0)
    with pytest.raises(LinkBroken, match="record 1 came where 0 was due"):
        list(from_draft().read(bytearray(data[len(data) // 2 :])))


def test_a_record_that_is_too_large_is_refused_before_it_has_come() -> None:
    head = HEADER.pack(MAX_BYTES + 1, 0, 5, 0, 0.0)
    with pytest.raises(LinkBroken, match="65537 bytes; 65536 are allowed"):
        list(from_draft().read(bytearray(head)))


def arrays(count: int) -> tuple[Any, Any, Any]:
    return np.zeros(count, np.int64), np.ones(count, np.int32), np.zeros(count, np.float32)


def record(kind: int, body: bytes) -> bytearray:
    head = HEADER.pack(len(body), 0, kind, 0, 0.0)
    return bytearray(head + body + bytes(-len(body) % ALIGNMENT))
