"""Heartbeats: an engine that is busy or loads lives, one that is stopped or goes on no more does
not."""

import asyncio
from typing import Any

import pytest

from outrider.worker.engine.heartbeat import LEAST_SECONDS, MAX_SLOWDOWN, Heartbeat
from outrider.worker.engine.loop import Engine
from outrider.worker.messages import Alive, AskAlive, Ready
from tests.unit.worker.engine.test_loop import Slow, Steps
from tests.unit.worker.handles import Handle
from tests.unit.worker.pipeline.pipelined_engine import Target

SLOW_PASS = 4.0
PROCESS = 7


class Watched:
    """An engine's heartbeat, at a time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.questions = 0
        self.stopped = False
        self.heartbeat = Heartbeat(
            self._ask, PROCESS, lambda: self.now, lambda pid: self.stopped and pid == PROCESS
        )

    def _ask(self) -> None:
        self.questions += 1

    def trouble_at(self, now: float) -> str:
        self.now = now
        return self.heartbeat.trouble()


def test_an_engine_that_answers_lives_for_ever() -> None:
    watched = Watched()
    watched.heartbeat.loaded(0.1)
    for number in range(5):
        assert not watched.trouble_at(1000.0 * number)
        assert not watched.trouble_at(1000.0 * number + LEAST_SECONDS)
        watched.heartbeat.beat()
    assert watched.questions == 5, "one is open at a time"


@pytest.mark.parametrize(
    ("longest_pass", "limit"),
    [(0.0, LEAST_SECONDS), (0.1, LEAST_SECONDS), (SLOW_PASS, MAX_SLOWDOWN * SLOW_PASS)],
)
def test_a_silent_engine_has_as_long_as_a_disturbed_pass(longest_pass: float, limit: float) -> None:
    watched = Watched()
    watched.heartbeat.loaded(longest_pass)
    assert not watched.trouble_at(5.0)
    assert not watched.trouble_at(5.0 + limit)
    assert "has not gone on for" in watched.trouble_at(6.0 + limit)
    watched.heartbeat.beat()
    assert not watched.trouble_at(7.0 + limit), "it was only late"


def test_an_engine_that_loads_takes_its_time() -> None:
    watched = Watched()
    assert not watched.trouble_at(0.0)
    assert not watched.trouble_at(1e6)
    watched.heartbeat.loaded(SLOW_PASS)
    assert not watched.trouble_at(1e6 + 1)
    assert watched.questions == 2, "what it was asked before says nothing"


def test_a_stopped_process_is_no_busy_one_even_while_it_loads() -> None:
    watched = Watched()
    watched.stopped = True
    assert "stopped" in watched.trouble_at(0.0)
    watched.stopped = False
    assert not watched.trouble_at(1.0)


class Asking(Slow):
    """A transport by which someone asks."""

    def drain(self) -> list[Any]:
        return [AskAlive()]


def test_an_engine_answers_before_its_next_pass() -> None:
    asking = Asking()
    engine: Engine[int, None] = Engine(Steps(), asking, asking)
    engine.receive()
    engine.send()
    assert Alive() in asking.sent


def test_a_pipelined_engine_answers_though_no_request_runs() -> None:
    target = Target()
    said: list[Any] = []
    target.send = lambda *messages: said.extend(messages)  # type: ignore[method-assign]
    target.inbox.append(AskAlive())
    target.engine.step()
    assert Alive() in said


def test_an_engines_handle_asks_and_hears() -> None:
    async def body() -> None:
        handle, now = Handle(), [0.0]
        handle.heartbeat.clock = lambda: now[0]
        handle.deliver([Ready("fp32", {}, 1, 8, 8, True, longest_pass=SLOW_PASS)])
        assert not handle.heartbeat.trouble()
        assert handle.sent == [AskAlive()]
        now[0] = MAX_SLOWDOWN * SLOW_PASS + 1
        assert handle.heartbeat.trouble()
        handle.deliver([Alive()])
        assert not handle.heartbeat.trouble()

    asyncio.run(body())
