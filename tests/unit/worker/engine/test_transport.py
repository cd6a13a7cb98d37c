"""What an engine hears and says: which messages reach it, which pass it by, and what wakes it."""

import select
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from outrider.protos.v1 import control_pb2
from outrider.worker.engine.socket_channel import Channel, ChannelClosed, pair
from outrider.worker.engine.transport import Closed, TargetPost, ThreadPost, milliseconds
from outrider.worker.link.wire import Close, CloseReason
from outrider.worker.messages import (
    Cancel,
    Identity,
    LinkStates,
    Progress,
    Report,
    SetDrafts,
    Tokens,
    ToPeer,
)

LONG_SECONDS = 20.0
"""More than any wake-up takes."""
IDENTITY = Identity("revision", 1, 512, 64, np.zeros(1, np.uint64))
NOBODY = "127.0.0.1:1"
"""An address at which no draft listens."""
TO_PEER = ToPeer(1, [Close(1, CloseReason.FINISHED)])


def seconds_asleep(post: TargetPost | ThreadPost) -> float:
    """How long the engine sleeps that would sleep for long."""
    started = time.monotonic()
    post.wait(LONG_SECONDS)
    return time.monotonic() - started


@dataclass
class Served:
    """A target's engine's post, and its server's end of the socket pair."""

    post: TargetPost
    server: Channel
    close_server: Any

    def states(self) -> LinkStates:
        """What the server next hears of links, while the engine drains and hears nothing."""
        poll = select.poll()
        poll.register(self.server, select.POLLIN)
        for _ in range(100):
            assert self.post.drain() == [], "links are no business of the scheduler's"
            if poll.poll(0):
                states = self.heard()
                assert isinstance(states, LinkStates)
                return states
            self.post.wait(LONG_SECONDS / 100)
        raise AssertionError("the server hears nothing of links")

    def heard(self) -> Any:
        """The one message that the server has been sent."""
        (message,) = self.server.drain()
        return message


@pytest.fixture
def served() -> Iterator[Served]:
    ours, theirs = pair()
    post, server = TargetPost(Channel(ours)), Channel(theirs)
    yield Served(post, server, theirs.close)
    post.close()
    for end in (ours, theirs):
        end.close()


@pytest.fixture
def thread_post() -> Iterator[ThreadPost]:
    post = ThreadPost(lambda messages: None)
    yield post
    post.mailbox.close()


def test_a_thread_s_post_gives_messages_in_order(thread_post: ThreadPost) -> None:
    assert thread_post.drain() == []
    thread_post.mailbox.put(Cancel(1))
    thread_post.mailbox.put(Cancel(2))
    assert thread_post.drain() == [Cancel(1), Cancel(2)]


def test_a_thread_s_post_ends_after_closed(thread_post: ThreadPost) -> None:
    thread_post.mailbox.put(Cancel(1))
    thread_post.mailbox.put(Closed())
    with pytest.raises(ChannelClosed):
        thread_post.drain()


def test_a_thread_s_post_wakes_when_something_is_put(thread_post: ThreadPost) -> None:
    putting = threading.Thread(target=thread_post.mailbox.put, args=(Closed(),))
    putting.start()
    assert seconds_asleep(thread_post) < LONG_SECONDS / 2
    putting.join()
    with pytest.raises(ChannelClosed):
        thread_post.drain()


def test_a_thread_s_post_delivers_on_the_sender_s_thread() -> None:
    delivered: list[tuple[int, Sequence[Any]]] = []
    post = ThreadPost(lambda m: delivered.append((threading.get_ident(), m)))
    post.send(Report(), TO_PEER)
    assert delivered == [(threading.get_ident(), (Report(), TO_PEER))]
    post.mailbox.close()


def test_nothing_said_ends_a_wait_when_its_time_is_over(
    thread_post: ThreadPost, served: Served
) -> None:
    for post in (thread_post, served.post):
        started = time.monotonic()
        post.wait(0.02)
        assert 0.01 < time.monotonic() - started < LONG_SECONDS / 2
        assert post.drain() == []


def test_the_server_s_messages_reach_a_target_s_engine_in_order(served: Served) -> None:
    served.server.send(Cancel(1), Cancel(2))
    assert served.post.drain() == [Cancel(1), Cancel(2)]


def test_the_server_wakes_a_target_s_engine(served: Served) -> None:
    served.server.send(Cancel(1))
    assert seconds_asleep(served.post) < LONG_SECONDS / 2


def test_links_wake_a_target_s_engine_while_its_server_is_silent(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, (NOBODY,)))
    served.states()
    for _ in range(3):  # each failure to connect is told
        assert seconds_asleep(served.post) < LONG_SECONDS / 2
        assert served.post.drain() == []


def test_states_of_links_pass_the_engine_by_to_its_server(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, (NOBODY,)))
    (link,) = map(control_pb2.Link.FromString, served.states().links)
    assert (link.address, link.detail) == (NOBODY, "")
    (link,) = map(control_pb2.Link.FromString, served.states().links)
    assert link.address == NOBODY
    assert link.detail, "why there is no link yet"


def test_the_scheduler_hears_what_came_beside_the_drafts_to_set(served: Served) -> None:
    served.server.send(Cancel(1), SetDrafts(IDENTITY, ()), Cancel(2))
    assert served.post.drain() == [Cancel(1), Cancel(2)]
    assert served.states() == LinkStates(())


def test_only_what_is_for_the_server_is_sent_to_it(served: Served) -> None:
    served.post.send(Progress("loading"), TO_PEER, Tokens(1, (2, 3)), TO_PEER)
    assert served.server.drain() == [Progress("loading"), Tokens(1, (2, 3))]
    served.post.send(TO_PEER)
    assert served.server.drain() == []


def test_a_message_for_a_link_that_has_ended_is_dropped(served: Served) -> None:
    served.server.send(SetDrafts(IDENTITY, ()))
    served.states()
    served.post.send(TO_PEER, Progress("on it goes"))
    assert served.heard() == Progress("on it goes")
    served.server.send(SetDrafts(IDENTITY, ()))
    assert served.states() == LinkStates(()), "the thread of the links goes on too"


def test_a_target_s_engine_wakes_and_ends_when_its_server_is_gone(served: Served) -> None:
    served.close_server()
    assert seconds_asleep(served.post) < LONG_SECONDS / 2
    with pytest.raises(ChannelClosed):
        served.post.drain()
    with pytest.raises(ChannelClosed):
        served.post.send(Report())


@pytest.mark.parametrize(
    ("seconds", "expected"), [(None, None), (0.25, 250.0), (0.0, 0.0), (-1.0, 0.0)]
)
def test_a_wait_in_milliseconds_is_endless_or_not_negative(
    seconds: float | None, expected: float | None
) -> None:
    assert milliseconds(seconds) == expected
