"""The engine's loop: what it counts as host time, and that its timeline ends no request."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from outrider.worker.engine.loop import Engine
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.messages import EngineReport

PASS_SECONDS, WAIT_SECONDS, HOST_SECONDS = 0.02, 0.03, 0.005
STEPS = 3


class Steps:
    """A scheduler of a few steps, each followed by a wait, and the host time of each."""

    def __init__(self) -> None:
        self.outbox: list[Any] = []
        self.reports = EngineReport()
        self.left = 2 * STEPS
        self.host_seconds = 0.0
        """Within the time of its passes."""

    def receive(self, message: Any, now: float) -> None:
        raise AssertionError("nothing is sent")

    def receive_during_pass(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        raise AssertionError("nothing is sent")

    def next(self, now: float) -> int | None:
        self.left -= 1
        return self.left if self.left % 2 else None

    def settle(self, step: int, output: None, now: float) -> None:
        time.sleep(HOST_SECONDS)

    def fail(self, step: int, detail: str, now: float) -> None:
        raise AssertionError(detail)

    def max_wait(self, now: float) -> float | None:
        return None

    def report(self) -> EngineReport:
        return self.reports


class Slow:
    """A runner and a transport that take their time, and note how much of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sent: list[Any] = []

    def run(self, step: int) -> None:
        self._sleep(PASS_SECONDS)

    def drain(self) -> list[Any]:
        return []

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        self._sleep(WAIT_SECONDS)

    def send(self, *messages: Any) -> None:
        self.sent += messages

    def _sleep(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        self.seconds += time.monotonic() - began


def test_host_time_is_what_neither_passes_nor_waits_take() -> None:
    slow = Slow()
    began = time.monotonic()
    engine: Engine[int, None] = Engine(Steps(), slow, slow)
    for _ in range(2 * STEPS):
        engine.step()
    elapsed = time.monotonic() - began
    host = slow.sent[-1].counters.host_seconds
    assert STEPS * HOST_SECONDS <= host <= elapsed - slow.seconds


def test_a_scheduler_adds_the_host_time_between_the_passes_of_a_step() -> None:
    slow, steps = Slow(), Steps()
    steps.host_seconds = 100.0
    engine: Engine[int, None] = Engine(steps, slow, slow)
    for _ in range(2 * STEPS):
        engine.step()
    assert slow.sent[-1].counters.host_seconds > 100.0


def test_an_error_in_its_timeline_fails_no_step(caplog: pytest.LogCaptureFixture) -> None:
    def spans(*_: object) -> tuple[()]:
        raise ZeroDivisionError

    slow, steps = Slow(), Steps()  # whose `fail` raises
    engine: Engine[int, None] = Engine(steps, slow, slow, PassTimeline(spans))
    engine.step()
    assert steps.left == 2 * STEPS - 1
    assert "the timeline lacks a step" in caplog.text
