"""A service that comes and goes fills no event store, and its log has the rest."""

import logging

import pytest

from outrider.operator.status.report import AT_ONCE, SECONDS, EventBudget
from tests.unit.operator.one_service import START, OneService


def test_so_many_come_at_once_and_then_one_at_a_time() -> None:
    budget = EventBudget()
    assert [budget.take(START) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    assert not budget.take(START + 0.9 * SECONDS)
    assert budget.take(START + 1.1 * SECONDS)
    assert not budget.take(START + 1.1 * SECONDS)
    later = START + 100 * AT_ONCE * SECONDS
    assert [budget.take(later) for _ in range(AT_ONCE + 1)].count(True) == AT_ONCE


def test_a_clock_that_was_put_back_takes_nothing_away() -> None:
    budget = EventBudget()
    assert budget.take(START)
    assert budget.take(START - 10 * SECONDS)


def test_readiness_that_comes_and_goes_is_told_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = OneService()
    service.rest(3)
    caplog.set_level(logging.WARNING)
    for number in range(2 * AT_ONCE):
        service.controllers.ready = lambda role, down=number % 2: not down
        service.rest(1)
    most = AT_ONCE + (service.now - START) / SECONDS
    assert AT_ONCE <= len(service.cluster.events) <= most
    left_out = [one for one in caplog.messages if "there were too many: TargetNotReady" in one]
    assert left_out, "the log has them"
