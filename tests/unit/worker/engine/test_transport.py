"""Transports of an engine: the messages that reach it, those that pass it by, and wake-ups."""

import asyncio
import select
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from outrider.contract.state import Link
from outrider.worker.engine.socket_channel import Channel, ChannelClosed, pair
from outrider.worker.engine.transport import (
    Closed,
    Inbox,
    LoopThread,
    TargetTransport,
    ThreadTransport,
)
from outrider.worker.link.wire import Close, CloseReason
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    FromPeer,
    Identity,
    LinkDown,
    LinkStates,
    Progress,
    SetDrafts,
    Tokens,
    ToPeer,
)

LONG_SECONDS = 20.0
"""More than any wake-up takes."""
IDENTITY = Identity("revision", 1, 512, 64, np.zeros(1, np.uint64))
NO_DRAFT = "127.0.0.1:1"
"""An address at which no draft listens."""
TO_PEER = ToPeer(1, [Close(1, CloseReason.FINISHED)])


def seconds_asleep(transport: TargetTransport | ThreadTransport) -> float:
    """Measure the sleep of an engine that would sleep for long."""
    started = time.monotonic()
    transport.wait(LONG_SECONDS)
    return time.monotonic() - started


@dataclass
class Served:
    """The transport of a target's engine, and the server's end of the socket pair."""

    transport: TargetTransport
    server: Channel
    close_server: Any
    unread: list[Any] = field(default_factory=list)
    """Link states that came together with others."""

    def states(self) -> LinkStates:
        """Wait for the server's next link states, while the engine drains and gets nothing."""
        poll = select.poll()
        poll.register(self.server, select.POLLIN)
        for _ in range(100):
            assert self.transport.drain() == [], "link states are not for the scheduler"
            if poll.poll(0):
                self.unread += self.server.drain()
            if self.unread:
                states = self.unread.pop(0)
                assert isinstance(states, LinkStates)
                return states
            self.transport.wait(LONG_SECONDS / 100)
        raise AssertionError("the server gets no link states")

    def drained(self, count: int) -> list[Any]:
        """Wait until the engine has been sent so many messages, and no more."""
        messages = self.transport.drain()
        deadline = time.monotonic() + LONG_SECONDS
        while len(messages) < count and time.monotonic() < deadline:
            self.transport.wait(LONG_SECONDS)
            messages += self.transport.drain()
        return messages

    def received(self) -> Any:
        """The one message that the server has been sent."""
        (message,) = self.server.drain()
        return message


@pytest.fixture
def served() -> Iterator[Served]:
    ours, theirs = pair()
    transport, server = TargetTransport(Channel(ours)), Channel(theirs)
    yield Served(transport, server, theirs.close)
    transport.close()
    for end in (ours, theirs):
        end.close()


@pytest.fixture
def thread_transport() -> Iterator[ThreadTransport]:
    transport = ThreadTransport(lambda messages: None)
    yield transport
    transport.inbox.close()


def test_a_thread_s_transport_gives_messages_in_order(thread_transport: ThreadTransport) -> None:
    assert thread_transport.drain() == []
    thread_transport.inbox.put(Cancel(1))
    thread_transport.inbox.put(Cancel(2))
    assert thread_transport.drain() == [Cancel(1), Cancel(2)]


def test_a_thread_s_transport_ends_after_closed(thread_transport: ThreadTransport) -> None:
    thread_transport.inbox.put(Cancel(1))
    thread_transport.inbox.put(Closed())
    with pytest.raises(ChannelClosed):
        thread_transport.drain()


def test_a_thread_s_transport_wakes_when_a_message_is_put(
    thread_transport: ThreadTransport,
) -> None:
    putting = threading.Thread(target=thread_transport.inbox.put, args=(Closed(),))
    putting.start()
    assert seconds_asleep(thread_transport) < LONG_SECONDS / 2
    putting.join()
    with pytest.raises(ChannelClosed):
        thread_transport.drain()


def test_a_thread_s_transport_delivers_on_the_sender_s_thread() -> None:
    delivered: list[tuple[int, Sequence[Any]]] = []
    transport = ThreadTransport(lambda m: delivered.append((threading.get_ident(), m)))
    transport.send(EngineReport(), TO_PEER)
    assert delivered == [(threading.get_ident(), (EngineReport(), TO_PEER))]
    transport.inbox.close()


def test_without_messages_a_wait_ends_when_its_time_is_over(
    thread_transport: ThreadTransport, served: Served
) -> None:
    for transport in (thread_transport, served.transport):
        started = time.monotonic()
        transport.wait(0.02)
        assert 0.01 < time.monotonic() - started < LONG_SECONDS / 2
        assert transport.drain() == []


def test_the_server_s_messages_reach_a_target_s_engine_in_order(served: Served) -> None:
    served.server.send(Cancel(1), Cancel(2))
    assert served.drained(2) == [Cancel(1), Cancel(2)]


def test_the_server_wakes_a_target_s_engine(served: Served) -> None:
    started = time.monotonic()
    for number in range(3):
        served.server.send(Cancel(number))
        assert served.drained(1) == [Cancel(number)]
    assert time.monotonic() - started < LONG_SECONDS / 2


def test_links_wake_a_target_s_engine_while_its_server_is_silent(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, (NO_DRAFT,)))
    served.states()
    for _ in range(3):  # each failure to connect is told
        assert seconds_asleep(served.transport) < LONG_SECONDS / 2
        assert served.transport.drain() == []


def test_states_of_links_pass_the_engine_by_to_its_server(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, (NO_DRAFT,)))
    assert served.states().links == (Link(NO_DRAFT),)
    (link,) = served.states().links
    assert link.address == NO_DRAFT
    assert link.detail, "why there is no link yet"


def test_the_scheduler_gets_what_came_beside_the_drafts_to_set(served: Served) -> None:
    served.server.send(Cancel(1), SetDrafts(IDENTITY, ()), Cancel(2))
    assert served.drained(2) == [Cancel(1), Cancel(2)]
    assert served.states() == LinkStates(())


def test_only_what_is_for_the_server_is_sent_to_it(served: Served) -> None:
    served.transport.send(Progress("loading"), TO_PEER, Tokens(1, (2, 3)), TO_PEER)
    assert served.server.drain() == [Progress("loading"), Tokens(1, (2, 3))]
    served.transport.send(TO_PEER)
    assert served.server.drain() == []


def test_a_message_for_a_link_that_has_ended_is_dropped(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, ()))
    served.states()
    served.transport.send(TO_PEER, Progress("on it goes"))
    assert served.received() == Progress("on it goes")
    served.server.send(SetDrafts(IDENTITY, ()))
    assert served.states() == LinkStates(()), "the thread of the links goes on too"


def test_growth_is_taken_past_messages_of_the_server_and_not_past_news_of_a_link() -> None:
    inbox = Inbox()
    first, second, late = (FromPeer(1, [Close(n, CloseReason.EVICTED)]) for n in range(3))
    cancel, down = Cancel(7), LinkDown(1)
    for message in (cancel, first, second, down, late):
        inbox.put(message)
    assert inbox.drain_peers() == [first, second]
    assert inbox.drain() == [cancel, down, late]
    inbox.close()


def test_a_target_s_engine_wakes_and_ends_when_its_server_is_gone(served: Served) -> None:
    assert served.transport.drain() == []  # an engine that is loaded begins to read
    served.close_server()
    assert seconds_asleep(served.transport) < LONG_SECONDS / 2
    with pytest.raises(ChannelClosed):
        served.transport.drain()
    with pytest.raises(ChannelClosed):
        served.transport.send(EngineReport())


def test_a_loop_that_is_finished_has_no_task_left() -> None:
    thread, left = LoopThread("loop"), list[asyncio.Task[None]]()

    async def last() -> None:
        left.append(asyncio.create_task(asyncio.sleep(3600)))

    thread.finish(last())
    assert left[0].cancelled()
