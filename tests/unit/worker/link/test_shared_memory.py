"""A link through shared memory: messages both ways, bounds on a peer, and what ends it."""

import math
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.errors import LinkBroken, PeerLeft, ProtocolViolation
from outrider.worker.link.memory_file import HEAD_BYTES, RING_BYTES
from outrider.worker.link.rate_limit import BURST, UNREAD_BYTES, tokens_of_record
from outrider.worker.link.records import HEADER
from outrider.worker.link.shared_memory import SharedMemoryLink
from outrider.worker.link.wire import Capacity, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.link.link_pairs import (
    CONTEXT,
    DRAFTS,
    IDENTITY,
    LONG_SECONDS,
    asleep,
    assert_no_wake_up_is_missed,
    commit,
    grow,
    shared_memory_pair,
)
from tests.unit.worker.link.test_wire import plain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

LIMITS = Limits(1, 8, 4, 32, 1.0)

Pair = tuple[SharedMemoryLink, SharedMemoryLink]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with shared_memory_pair() as ends:
        yield ends


def received(end: SharedMemoryLink) -> list[object]:
    return [plain(message) for part in end.receive() for message in part.messages]


def test_messages_come_in_order_whatever_their_kind(pair: Pair) -> None:
    target, draft = pair
    opening = Open(1, np.arange(9, dtype=np.int32), SamplingParams(seed=3), LIMITS, prompt=9)
    messages = [opening, commit(8), LIMITS, commit(9)]
    target.send(messages[:1])
    target.send(messages[1:])
    parts = draft.receive()
    assert [part.link for part in parts] == 2 * [DRAFTS]
    assert [len(part.messages) for part in parts] == [1, 3], "what was written at once"
    assert [plain(m) for part in parts for m in part.messages] == [plain(m) for m in messages]
    draft.send([Capacity(1, 2), grow()])
    assert received(target) == [plain(Capacity(1, 2)), plain(grow())]


def test_a_message_larger_than_the_ring_passes_in_pieces(pair: Pair) -> None:
    target, draft = pair
    tokens = np.arange(CONTEXT, dtype=np.int32)
    target.send([Open(1, tokens, SamplingParams(), LIMITS, prompt=9), commit(CONTEXT)])
    parts = draft.receive()
    assert parts == []
    for _ in range(CONTEXT * 5 // RING_BYTES):
        target.receive()  # in which it writes what was kept
        parts += draft.receive()
    assert [plain(m)[0] for part in parts for m in part.messages] == [1, 1]
    assert parts[0].messages[0].tokens.tolist() == tokens.tolist()


def test_each_message_has_the_time_at_which_it_was_written(pair: Pair) -> None:
    target, draft = pair
    before = time.monotonic()
    target.receive()
    draft.send([grow(1)])
    between = time.monotonic()
    draft.send([grow(4)])
    first, second = target.receive()
    assert before <= first.arrived <= between <= second.arrived <= time.monotonic()


@pytest.mark.parametrize("claimed", [math.nan, math.inf, -math.inf, 0.0, 1e300])
def test_a_time_that_a_peer_makes_up_lies_since_the_last_look(pair: Pair, claimed: float) -> None:
    target, draft = pair
    target.receive()
    looked = time.monotonic()
    target._looked_at = looked
    record = bytearray(draft.writer.write([Capacity(1, 1)]))
    record[HEADER.size - 8 : HEADER.size] = struct.pack("<d", claimed)
    draft.ring.write(record)
    (part,) = target.receive()
    assert looked <= part.arrived <= time.monotonic()


def test_a_writer_without_room_sleeps_until_there_is_some(pair: Pair) -> None:
    target, draft = pair
    target.send([commit(0, 10 * RING_BYTES // 32), *(commit(i, RING_BYTES // 8) for i in range(8))])

    def read_all() -> None:
        count = 0
        while count < 9:
            count += len(await_messages(draft))

    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(read_all)
        while target._unsent:
            asleep(target)
            target.receive()
        read.result(LONG_SECONDS)


def await_messages(end: SharedMemoryLink) -> list[object]:
    while not (found := received(end)):
        asleep(end)
    return found


def test_a_draft_that_leaves_too_much_unread_breaks_the_rules(pair: Pair) -> None:
    target, draft = pair
    for position in range((RING_BYTES + target.max_unread) // RING_BYTES):
        target.send([commit(position, RING_BYTES // 4 - 64)])
    with pytest.raises(ProtocolViolation, match=f"more than {target.max_unread} bytes were left"):
        target.send([commit(0, RING_BYTES // 2)])
    draft.send((RING_BYTES + UNREAD_BYTES) // 16_100 * [grow(1, 1000)])
    with pytest.raises(ProtocolViolation, match=f"more than {UNREAD_BYTES} bytes"):
        draft.send(4 * [grow(1, 1000)])


def test_too_many_messages_break_the_rules(pair: Pair) -> None:
    target, draft = pair
    many = int(BURST / tokens_of_record(IDENTITY.sessions))
    draft.send(many * [Capacity(1, 1)])  # read at one time: nothing is filled in between
    with pytest.raises(ProtocolViolation, match="messages or kibibytes a second"):
        target.receive()


def test_a_bell_rung_without_end_breaks_the_rules(pair: Pair) -> None:
    target, draft = pair
    draft.bell.send(b"!")
    target.awake(woken=True)
    target.token_bucket.tokens = 0.5
    target.token_bucket.filled_at = time.monotonic() + LONG_SECONDS  # not filled before
    draft.bell.send(b"!")
    with pytest.raises(ProtocolViolation, match="messages or kibibytes a second"):
        target.awake(woken=True)


def test_words_that_lie_break_the_link(pair: Pair) -> None:
    target, draft = pair
    draft.send([grow()])
    np.frombuffer(draft.ring._map, np.int64, HEAD_BYTES // 8)[:] = -5
    for call in (target.receive, target.fall_asleep):
        with pytest.raises(LinkBroken, match="-5 bytes were written"):
            call()


def test_bytes_that_are_no_records_break_the_link(pair: Pair) -> None:
    target, draft = pair
    draft.ring.write(b"\xff" * 64)
    with pytest.raises(LinkBroken, match="record 4294967295 came where 0 was due"):
        target.receive()


def test_a_record_beyond_its_end_s_limit_breaks_the_link(pair: Pair) -> None:
    target, draft = pair
    draft.send([grow(1, 20_000)])
    with pytest.raises(LinkBroken, match="262144 are allowed"):
        target.receive()


def test_a_peer_that_has_left_ends_a_sleep(pair: Pair) -> None:
    target, draft = pair
    target.fall_asleep()
    draft.close()
    with pytest.raises(PeerLeft, match="has left the shared memory"):
        target.awake(woken=True)
    target.send([commit(1)])


def test_memory_goes_with_its_link_though_its_error_stays() -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("outrider-link")

    before = mapped()
    with shared_memory_pair() as (target, draft):
        draft.send([grow(1, 20_000)])
        with pytest.raises(LinkBroken) as error:
            target.receive()
        assert mapped() == before + 2
    assert mapped() == before
    assert error.value.__traceback__ is not None  # which refers to the link


def test_no_wake_up_is_missed_however_two_threads_interleave(pair: Pair) -> None:
    assert_no_wake_up_is_missed(*pair)
