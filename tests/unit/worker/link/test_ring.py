"""Shared rings: bytes in order, wake-ups that are never missed, and words that say nonsense."""

import contextlib
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.errors import LinkBroken
from outrider.worker.link import memory_file
from outrider.worker.link.memory_file import FILE_BYTES, HEAD_BYTES, RING_BYTES
from outrider.worker.link.ring import LINE, Ring, RingEnd

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

Pair = tuple[Ring, Ring]


def make_pair() -> Pair:
    descriptor = memory_file.create()
    try:
        memory_file.check(descriptor)
        return Ring(descriptor, RingEnd.TARGET), Ring(descriptor, RingEnd.DRAFT)
    finally:
        os.close(descriptor)


@pytest.fixture
def pair() -> Pair:
    return make_pair()


def words(one: Ring) -> Any:
    """Its words, as a process that shares the memory can write them."""
    return np.frombuffer(one._map, np.int64, HEAD_BYTES // 8)


chunks = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 3 * RING_BYTES // 2)), min_size=1, max_size=12
)


@given(chunks, st.integers(0, 2**32))
@settings(max_examples=25)
def test_bytes_come_in_order_however_often_the_rings_wrap(
    turns: list[tuple[int, int]], seed: int
) -> None:
    """Turns of writing so many bytes at an end and reading what there is at the other."""
    ends, random = make_pair(), np.random.default_rng(seed)
    sent, come = [bytearray(), bytearray()], [bytearray(), bytearray()]
    for end, size in turns:
        data = random.bytes(size)
        count = ends[end].write(data)
        waiting = len(sent[end]) - len(come[end])
        assert count == min(size, RING_BYTES - waiting)
        sent[end] += data[:count]
        if size % 3:
            come[end] += ends[1 - end].read()
    for end in (0, 1):
        come[end] += ends[1 - end].read()
    assert sent == come


def test_an_empty_ring_gives_nothing(pair: Pair) -> None:
    assert pair[0].read() == b""
    assert pair[0].write(b"") == 0
    assert pair[1].read() == b""


def test_a_writer_wakes_a_sleeper_once(pair: Pair) -> None:
    target, draft = pair
    target.write(b"awake")
    assert not target.must_wake
    draft.read()
    assert draft.fall_asleep(has_more=False)
    target.write(b"one")
    assert target.must_wake
    target.must_wake = False
    target.write(b"two")
    assert not target.must_wake, "it has been woken"
    assert draft.read() == b"onetwo"


def test_an_end_does_not_fall_asleep_over_bytes(pair: Pair) -> None:
    target, draft = pair
    target.write(b"before")
    assert not draft.fall_asleep(has_more=False)
    draft.awake()
    target.write(b"after")
    assert not target.must_wake


def test_room_wakes_only_an_end_that_has_more_to_write(pair: Pair) -> None:
    target, draft = pair
    target.write(bytes(RING_BYTES))
    assert target.fall_asleep(has_more=True)
    draft.read()
    assert draft.must_wake
    draft.must_wake = False
    target.awake()
    target.write(b"more")
    assert target.fall_asleep(has_more=False)
    draft.read()
    assert not draft.must_wake


def test_an_end_with_more_to_write_does_not_fall_asleep_over_room(pair: Pair) -> None:
    target, draft = pair
    assert target.write(bytes(RING_BYTES + 1)) == RING_BYTES
    draft.read()
    assert not target.fall_asleep(has_more=True)


def read(one: Ring) -> object:
    return one.read()


def sleep(one: Ring) -> object:
    return one.fall_asleep(has_more=False)


def write(one: Ring) -> object:
    return one.write(bytes(RING_BYTES))


WRITTEN_BY_TARGET, READ_BY_DRAFT = LINE * 1, LINE * 5


@pytest.mark.parametrize("value", [-1, 3, RING_BYTES + 5, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("look", [read, sleep])
def test_a_writer_s_place_that_cannot_be_is_refused(
    pair: Pair, value: int, look: Callable[[Ring], object]
) -> None:
    target, draft = pair
    target.write(b"four")
    draft.read()
    words(target)[WRITTEN_BY_TARGET] = value
    with pytest.raises(LinkBroken, match=f"{value} bytes were written, and 4 of them read"):
        look(draft)


@pytest.mark.parametrize("value", [-1, RING_BYTES + 5, 2**63 - 1, -(2**63)])
def test_a_reader_s_place_that_cannot_be_is_refused(pair: Pair, value: int) -> None:
    target, draft = pair
    target.write(b"four")
    words(draft)[READ_BY_DRAFT] = value
    with pytest.raises(LinkBroken, match=f"{value} bytes were read, of 4"):
        write(target)


@given(st.integers(0, HEAD_BYTES // 8 - 1), st.integers(-(2**63), 2**63 - 1))
def test_no_word_makes_an_end_touch_other_memory(word: int, value: int) -> None:
    """It fails by its own error, or reads and writes within its rings."""
    target, draft = make_pair()
    target.write(bytes(100))
    words(target)[word] = value
    for one in (target, draft):
        with contextlib.suppress(LinkBroken):
            assert len(one.read()) <= RING_BYTES
            one.fall_asleep(has_more=True)
            assert one.write(bytes(2 * RING_BYTES)) <= RING_BYTES


def test_an_end_cannot_shrink_the_memory(pair: Pair) -> None:
    descriptor = memory_file.create()
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def test_memory_that_can_be_shrunk_is_refused() -> None:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, FILE_BYTES)
    with pytest.raises(LinkBroken, match="with seals 0x0"):
        memory_file.check(descriptor)
    os.close(descriptor)


def test_a_file_that_is_no_memory_is_refused() -> None:
    with open("/proc/self/status") as file, pytest.raises(LinkBroken, match="no memory"):
        memory_file.check(file.fileno())
    with tempfile.TemporaryFile() as file:
        file.truncate(FILE_BYTES)
        with pytest.raises(LinkBroken, match="memory"):
            memory_file.check(file.fileno())


def test_memory_that_cannot_be_had_is_named() -> None:
    """The limit on files holds for memory too, which is therefore had now or never."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES - 1, before[1]))
    try:
        with pytest.raises(LinkBroken, match=r"516 KiB of memory cannot be shared: File too large"):
            memory_file.create()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
