"""Direct links of an engine: order of news and messages, loss, wake-ups."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from outrider.worker.engine.direct_links import DirectLinks
from outrider.worker.engine.poller import Poller
from outrider.worker.errors import LinkBroken, ProtocolViolation, WorkerError
from outrider.worker.link.wire import Capacity
from outrider.worker.messages import (
    DirectLinkLost,
    DirectLinkUp,
    FromPeer,
    LinkDown,
    LinkUp,
    Progress,
    ToPeer,
)

LINK, OTHER = 4, 5
UP = LinkUp(LINK, np.ones(3, np.bool_))


@dataclass
class FakeLink:
    """One whose peer is the test."""

    bell: socket.socket
    coming: list[FromPeer] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    error: Exception | None = None
    """Raised by every call."""
    closed: bool = False
    woken: list[bool] = field(default_factory=list)

    def _check(self) -> None:
        assert not self.closed
        if self.error is not None:
            raise self.error

    def send(self, messages: Sequence[Any]) -> None:
        self._check()
        self.sent += messages

    def receive(self) -> list[FromPeer]:
        self._check()
        coming, self.coming = self.coming, []
        return coming

    def fall_asleep(self) -> bool:
        self._check()
        return not self.coming

    def awake(self, woken: bool) -> None:
        self._check()
        self.woken.append(woken)

    def fileno(self) -> int:
        return self.bell.fileno()

    def close(self) -> None:
        self.closed = True
        self.bell.close()


@dataclass
class Engine:
    """What an engine has, with one direct link."""

    links: DirectLinks
    readable: Poller
    direct: FakeLink
    bell: socket.socket
    """The peer's end."""
    lost: list[DirectLinkLost]


@pytest.fixture
def engine() -> Iterator[Engine]:
    readable, lost = Poller(), list[DirectLinkLost]()
    links = DirectLinks(readable, lost.append)
    ours, theirs = socket.socketpair()
    direct = FakeLink(ours)
    assert links.for_scheduler([DirectLinkUp(UP, direct)]) == [UP]
    yield Engine(links, readable, direct, theirs, lost)
    ours.close()
    theirs.close()


def message(number: int) -> FromPeer:
    return FromPeer(LINK, (Capacity(number, 0),), 0.0)


def test_messages_go_through_the_link_that_is_direct(engine: Engine) -> None:
    assert engine.links.send(ToPeer(LINK, [1, 2]))
    assert engine.direct.sent == [1, 2]
    assert not engine.links.send(ToPeer(OTHER, [3]))
    assert LINK in engine.links
    assert OTHER not in engine.links


def test_other_news_pass_by_in_order(engine: Engine) -> None:
    news = [Progress("one"), FromPeer(OTHER, (), 0.0), LinkDown(OTHER), Progress("two")]
    assert engine.links.for_scheduler(news) == news


def test_the_last_messages_come_before_the_news_that_a_link_is_down(engine: Engine) -> None:
    engine.direct.coming = [message(1), message(2)]
    passed = engine.links.for_scheduler([Progress("one"), LinkDown(LINK), Progress("two")])
    assert passed == [Progress("one"), message(1), message(2), LinkDown(LINK), Progress("two")]
    assert engine.direct.closed
    assert not engine.links.send(ToPeer(LINK, [1]))
    assert engine.links.receive() == []
    assert not engine.lost


CALLS = ["receive", "fall_asleep", "awake", "send"]


@pytest.mark.parametrize("error", [LinkBroken("words"), ProtocolViolation("too many")])
@pytest.mark.parametrize("call", CALLS)
def test_a_link_that_fails_is_given_up_and_its_stream_told(
    engine: Engine, call: str, error: WorkerError
) -> None:
    engine.direct.error = error
    use(engine.links, call)
    assert engine.lost == [DirectLinkLost(LINK, error)]
    assert engine.direct.closed
    assert LINK not in engine.links
    assert engine.readable.poll(0) == set()
    assert engine.links.for_scheduler([LinkDown(LINK)]) == [LinkDown(LINK)]
    assert len(engine.lost) == 1


@pytest.mark.parametrize("call", CALLS)
def test_a_fault_of_one_link_ends_that_link_alone(
    engine: Engine, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine.direct.error = KeyError("a field")
    use(engine.links, call)
    (lost,) = engine.lost
    assert isinstance(lost.error, LinkBroken)
    assert "KeyError: 'a field'" in str(lost.error)
    assert engine.direct.closed
    assert "Traceback" in caplog.text


def use(links: DirectLinks, call: str) -> None:
    match call:
        case "receive":
            assert links.receive() == []
        case "fall_asleep":
            assert links.fall_asleep()
        case "awake":
            links.awake(())
        case "send":
            assert links.send(ToPeer(LINK, [1])), "it is nobody else's either"


def test_an_engine_does_not_sleep_over_messages(engine: Engine) -> None:
    assert engine.links.fall_asleep()
    engine.direct.coming = [message(1)]
    assert not engine.links.fall_asleep()


def test_a_link_is_told_whether_its_bell_woke_the_engine(engine: Engine) -> None:
    engine.links.awake(engine.readable.poll(0))
    engine.bell.send(b"!")
    engine.links.awake(engine.readable.poll(0))
    assert engine.direct.woken == [False, True]
