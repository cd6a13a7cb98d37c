"""A link through torch.distributed: messages both ways, bounds on a peer, and what ends it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.worker.errors import LinkBroken, PeerLeft, ProtocolViolation, WorkerError
from outrider.worker.link.distributed import DistributedLink
from outrider.worker.link.process_pair import ProcessPair
from outrider.worker.link.rate_limit import BURST, UNREAD_BYTES, tokens_of_record
from outrider.worker.link.slots import DATA_BYTES, HEADER, SLOT_BYTES, SPARE, WINDOW
from outrider.worker.link.wire import Capacity, Limits, Open
from outrider.worker.messages import FromPeer
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.link.distributed_pairs import distributed_pair, joined_processes
from tests.unit.worker.link.link_pairs import (
    CONTEXT,
    DRAFTS,
    IDENTITY,
    LONG_SECONDS,
    asleep,
    assert_no_wake_up_is_missed,
    commit,
    grow,
)
from tests.unit.worker.link.test_wire import plain

LIMITS = Limits(1, 8, 4, 32, 1.0)

Pair = tuple[DistributedLink, DistributedLink]


@pytest.fixture
def processes() -> Iterator[tuple[ProcessPair, ProcessPair]]:
    with joined_processes() as both:
        yield both


@pytest.fixture
def pair(processes: tuple[ProcessPair, ProcessPair]) -> Iterator[Pair]:
    with distributed_pair(processes) as ends:
        yield ends


def await_parts(end: DistributedLink, messages: int) -> list[FromPeer]:
    parts: list[FromPeer] = []
    while sum(len(part.messages) for part in parts) < messages:
        asleep(end)
        parts += end.receive()
    return parts


def await_messages(end: DistributedLink, count: int = 1) -> list[object]:
    return [plain(m) for part in await_parts(end, count) for m in part.messages]


def until_raised(end: DistributedLink, error: type[WorkerError], match: str) -> None:
    """The end's engine goes on reading, asleep in between, until the link ends."""

    def read_on() -> None:
        while True:
            asleep(end)
            end.receive()

    with pytest.raises(error, match=match):
        read_on()


def test_messages_come_in_order_whatever_their_kind(pair: Pair) -> None:
    target, draft = pair
    opening = Open(1, np.arange(9, dtype=np.int32), SamplingParams(seed=3), LIMITS, prompt=9)
    messages = [opening, commit(8), LIMITS, commit(9)]
    target.send(messages[:1])
    target.send(messages[1:])
    parts = await_parts(draft, 4)
    assert [part.link for part in parts] == 2 * [DRAFTS]
    assert [len(part.messages) for part in parts] == [1, 3], "what was sent at once"
    assert [plain(m) for part in parts for m in part.messages] == [plain(m) for m in messages]
    draft.send([Capacity(1, 2), grow()])
    assert await_messages(target, 2) == [plain(Capacity(1, 2)), plain(grow())]


def test_a_message_larger_than_the_window_passes_in_pieces(pair: Pair) -> None:
    target, draft = pair
    tokens = np.arange(CONTEXT, dtype=np.int32)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(await_parts, draft, 2)
        target.send([Open(1, tokens, SamplingParams(), LIMITS, prompt=9), commit(CONTEXT)])
        assert target._unsent
        while target._unsent:
            asleep(target)
            target.receive()
        parts = read.result(LONG_SECONDS)
    assert [plain(m)[0] for part in parts for m in part.messages] == [1, 1]
    assert parts[0].messages[0].tokens.tolist() == tokens.tolist()


def test_one_side_may_speak_alone_for_as_long_as_the_other_reads(pair: Pair) -> None:
    target, draft = pair
    for turn in range(4 * WINDOW):
        draft.send([grow(1 + 3 * turn)])
        while draft._unsent:  # until it hears what was taken
            asleep(draft)
            draft.receive()
        assert await_messages(target) == [plain(grow(1 + 3 * turn))]


def test_each_message_has_the_time_at_which_it_came(pair: Pair) -> None:
    target, draft = pair
    before = time.monotonic()
    draft.send([grow(1)])
    (first,) = await_parts(target, 1)
    between = time.monotonic()
    draft.send([grow(4)])
    (second,) = await_parts(target, 1)
    assert before <= first.arrived <= between <= second.arrived <= time.monotonic()


def test_a_draft_that_leaves_too_much_unread_breaks_the_rules(pair: Pair) -> None:
    target, draft = pair
    with pytest.raises(ProtocolViolation, match=f"more than {target.max_unread} bytes were left"):
        target.send([commit(0, (target.max_unread + WINDOW * SLOT_BYTES) // 4)])
    with pytest.raises(ProtocolViolation, match=f"more than {UNREAD_BYTES} bytes"):
        draft.send((WINDOW * SLOT_BYTES + UNREAD_BYTES) // 16_000 * [grow(1, 1000)])


def test_too_many_messages_break_the_rules(pair: Pair) -> None:
    target, draft = pair
    draft.send([Capacity(1, 1)])
    await_messages(target)
    draft.send(int(BURST / tokens_of_record(IDENTITY.sessions)) * [Capacity(1, 1)])
    target.token_bucket.filled_at = time.monotonic() + LONG_SECONDS  # not filled before
    until_raised(target, ProtocolViolation, "messages or kibibytes a second")


def test_slots_without_messages_are_messages_too(pair: Pair) -> None:
    target, draft = pair
    target.token_bucket.tokens = tokens_of_record(IDENTITY.sessions) / 2
    target.token_bucket.filled_at = time.monotonic() + LONG_SECONDS
    draft.slots._send(b"")
    until_raised(target, ProtocolViolation, "messages or kibibytes a second")


def slot(size: int, taken: int, data: bytes = b"") -> NDArray[np.uint8]:
    """A slot as a process that has gone mad sends it."""
    made = np.zeros(SLOT_BYTES, np.uint8)
    HEADER.pack_into(made.data, 0, size, taken)
    made[HEADER.size : HEADER.size + len(data)] = np.frombuffer(data, np.uint8)
    return made


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (slot(DATA_BYTES + 1, 0), f"a slot of {DATA_BYTES + 1} bytes; {DATA_BYTES} are allowed"),
        (slot(2**32 - 1, 0), "a slot of 4294967295 bytes"),
        (slot(0, 5), "5 slots were taken, of 2 on their way"),
        (slot(0, 2**32 - 1), "4294967295 slots were taken, of 2 on their way"),
        (slot(64, 0, b"\xff" * 64), "record 4294967295 came where 0 was due"),
    ],
)
def test_slots_that_lie_break_the_link(pair: Pair, sent: NDArray[np.uint8], says: str) -> None:
    target, draft = pair
    for position in range(2):
        target.send([commit(position)])
    mad = draft.slots._pair.send(sent)
    until_raised(target, LinkBroken, says)
    mad.wait()


def test_a_record_beyond_its_end_s_limit_breaks_the_link(pair: Pair) -> None:
    target, draft = pair
    draft.send([grow(1, 20_000)])
    until_raised(target, LinkBroken, "262144 are allowed")


def test_slots_that_nobody_asked_for_break_the_rules(pair: Pair) -> None:
    """Nothing is read, and so acknowledged, while they come."""
    target, draft = pair
    mad = [draft.slots._pair.send(slot(0, 0)) for _ in range(WINDOW + SPARE + 1)]
    target.slots._reader._thread.join(LONG_SECONDS)
    until_raised(target, ProtocolViolation, f"more than {WINDOW + SPARE} slots came unasked")
    mad.clear()  # gloo sends nothing that is forgotten


def test_a_peer_that_has_left_ends_a_sleep(pair: Pair) -> None:
    target, draft = pair
    draft.close()
    until_raised(target, PeerLeft, ".")
    with pytest.raises(PeerLeft):
        target.send([commit(1)])


def test_what_came_before_the_peer_left_is_read(pair: Pair) -> None:
    target, draft = pair
    draft.send([grow(1)])
    while not target.slots._reader._arrived:
        asleep(target)
    draft.close()
    target.slots._reader._thread.join(LONG_SECONDS)
    assert await_messages(target) == [plain(grow(1))]
    until_raised(target, PeerLeft, ".")


@pytest.mark.parametrize("first", [0, 1])
def test_an_end_that_is_closed_leaves_no_thread_and_no_descriptor(pair: Pair, first: int) -> None:
    """Whether or not the other end is, which may never answer."""
    end = pair[first]
    thread, bell = end.slots._reader._thread, end.slots._reader.bell
    end.close()
    thread.join(LONG_SECONDS)
    assert not thread.is_alive()
    assert bell.fileno() == -1


def test_no_wake_up_is_missed_however_two_threads_interleave(pair: Pair) -> None:
    assert_no_wake_up_is_missed(*pair)
