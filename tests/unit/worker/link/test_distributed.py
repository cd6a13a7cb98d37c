"""Payloads that torch.distributed carries beside a stream, by a fake pair of processes."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, PeerLeft, ProtocolViolation, WorkerError
from outrider.worker.link import distributed
from outrider.worker.link.distributed import DistributedPayloads

SECONDS = 20.0
MAX_BYTES, MAX_UNREAD = 100, 1000
LEFT = PeerLeft("it has left")


class FakePair:
    """One process of two, in this one."""

    def __init__(self) -> None:
        self.other = self
        self.asked: list[int] = []
        """Bytes of each receive, in the order in which they were posted."""
        self.closed = threading.Event()
        self.may_send = threading.Event()
        self.may_send.set()
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def send(self, payload: bytes) -> None:
        while not self.may_send.wait(0.01):
            self._check()
        self._check()
        self.other._arrived.put(payload)

    def receive(self, size: int) -> bytes:
        self.asked.append(size)
        while True:
            try:
                payload = self._arrived.get(timeout=0.01)
            except queue.Empty:
                self._check()
            else:
                assert len(payload) == size
                return payload

    def close(self) -> None:
        self.closed.set()

    def _check(self) -> None:
        if self.closed.is_set() or self.other.closed.is_set():
            raise LEFT


class Side:
    """Payloads of one end, what it puts on its stream, and what is lost."""

    def __init__(self, join: Callable[[], Any]) -> None:
        self.stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.lost: asyncio.Queue[WorkerError] = asyncio.Queue()
        self.pair = DistributedPayloads(
            join,
            pb.DraftMessage,
            self.stream.put_nowait,
            self.lost.put_nowait,
            MAX_BYTES,
            MAX_UNREAD,
        )

    async def said(self) -> AsyncIterator[bytes]:
        """What it says on its stream, until None."""
        while (message := await self.stream.get()) is not None:
            yield message


def run(case: Callable[[Side, Side, FakePair, FakePair], Coroutine[Any, Any, None]]) -> None:
    """Run a case with both sides, and the pair of each."""

    async def both() -> None:
        pairs = FakePair(), FakePair()
        pairs[0].other, pairs[1].other = pairs[1], pairs[0]
        sides = [Side(lambda pair=pair: pair) for pair in pairs]
        async with asyncio.timeout(SECONDS):
            await case(*sides, *pairs)
        for side in sides:
            side.pair.close()

    asyncio.run(both())


def heard(by: Side, of: Side) -> AsyncIterator[bytes]:
    """The payloads that one side has of the other."""
    return by.pair.payloads(of.said(), pb.DraftMessage)


def announcement(size: int) -> bytes:
    return pb.DraftMessage(announced=size).SerializeToString()


def test_payloads_come_in_order_among_what_the_stream_says_itself() -> None:
    async def case(one: Side, two: Side, *_: FakePair) -> None:
        one.pair.send(b"first")
        one.stream.put_nowait(b"")
        one.pair.send(b"second one")
        one.stream.put_nowait(b"\xff no message")
        one.stream.put_nowait(None)
        found = [payload async for payload in heard(two, one)]
        assert found == [b"first", b"", b"second one", b"\xff no message"]
        assert one.pair.sent_bytes == len(b"firstsecond one")

    run(case)


def test_no_receive_is_posted_before_its_bytes_are_announced() -> None:
    async def case(one: Side, two: Side, _: FakePair, pair: FakePair) -> None:
        payloads = heard(two, one)
        waiting = asyncio.ensure_future(anext(payloads))
        await asyncio.sleep(0)
        assert pair.asked == []
        one.pair.send(b"some bytes")
        assert await waiting == b"some bytes"
        assert pair.asked == [10]

    run(case)


def test_what_is_sent_before_the_other_has_joined_waits_for_it() -> None:
    async def case(one: Side, two: Side, pair: FakePair, other: FakePair) -> None:
        may_join = threading.Event()

        def join_late() -> FakePair:
            may_join.wait(SECONDS)
            return pair

        late = Side(join_late)
        late.pair.send(b"early")
        assert not late.pair.joined.done()
        may_join.set()
        assert await anext(heard(two, late)) == b"early"
        late.pair.close()

    run(case)


def test_a_pair_that_joins_too_late_is_closed() -> None:
    async def case(one: Side, two: Side, pair: FakePair, _: FakePair) -> None:
        may_join = threading.Event()

        def join_late() -> FakePair:
            may_join.wait(SECONDS)
            return pair

        late = Side(join_late)
        late.pair.close()
        may_join.set()
        assert await asyncio.to_thread(pair.closed.wait, SECONDS)
        late.pair.send(b"too late")
        assert late.stream.empty()

    run(case)


@pytest.mark.parametrize(
    ("error", "says"), [(LinkBroken("nobody came"), "nobody came"), (ValueError("odd"), "odd")]
)
def test_who_cannot_join_loses_the_link(error: Exception, says: str) -> None:
    async def case(one: Side, two: Side, *_: FakePair) -> None:
        def fail() -> FakePair:
            raise error

        alone = Side(fail)
        lost = await alone.lost.get()
        assert isinstance(lost, LinkBroken)
        assert str(lost) == says
        alone.pair.close()

    run(case)


def test_a_payload_that_is_too_large_is_not_received() -> None:
    async def case(one: Side, two: Side, _: FakePair, pair: FakePair) -> None:
        one.stream.put_nowait(announcement(MAX_BYTES + 1))
        with pytest.raises(ProtocolViolation, match="a message of 101 bytes; 100 are allowed"):
            await anext(heard(two, one))
        assert pair.asked == []

    run(case)


def test_a_peer_that_leaves_too_much_unread_is_given_up() -> None:
    async def case(one: Side, two: Side, pair: FakePair, _: FakePair) -> None:
        pair.may_send.clear()
        for _turn in range(MAX_UNREAD // MAX_BYTES):
            one.pair.send(bytes(MAX_BYTES))
        assert one.lost.empty()
        one.pair.send(b"!")
        lost = await one.lost.get()
        assert isinstance(lost, ProtocolViolation)
        assert str(lost) == "more than 1000 bytes were left unread"

    run(case)


def test_a_peer_that_leaves_a_receive_has_its_stream_say_why() -> None:
    async def case(one: Side, two: Side, pair: FakePair, _: FakePair) -> None:
        one.stream.put_nowait(announcement(5))
        one.stream.put_nowait(None)
        pair.close()
        assert [payload async for payload in heard(two, one)] == []

    run(case)


def test_a_receive_whose_stream_goes_on_breaks_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "LEFT_SECONDS", 0.01)

    async def case(one: Side, two: Side, pair: FakePair, _: FakePair) -> None:
        one.stream.put_nowait(announcement(5))
        pair.close()
        with pytest.raises(LinkBroken, match="it has left"):
            await anext(heard(two, one))

    run(case)


def test_a_peer_that_has_left_ends_a_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "LEFT_SECONDS", 0.01)

    async def case(one: Side, two: Side, _: FakePair, other: FakePair) -> None:
        other.close()
        one.pair.send(b"to nobody")
        assert str(await one.lost.get()) == "it has left"

    run(case)


def test_a_side_that_closed_itself_has_lost_nothing() -> None:
    async def case(one: Side, two: Side, pair: FakePair, _: FakePair) -> None:
        pair.may_send.clear()
        one.pair.send(b"some bytes")
        one.pair.close()
        assert await asyncio.to_thread(pair.closed.wait, SECONDS)
        await asyncio.sleep(0.05)
        assert one.lost.empty()

    run(case)
