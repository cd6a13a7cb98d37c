"""Retry-after of a refused request."""

import pytest

from outrider.contract.inference import Timing
from outrider.worker.engine.handle import WINDOW, RetryAfter


@pytest.mark.parametrize(
    ("waiting", "running", "each", "seconds"),
    [
        (64, 8, 2.0, 16),  # 4 end in a second
        (64, 8, 2.1, 17),
        (0, 8, 16.0, 2),  # none may wait: one of the eight has to end
        (0, 0, 16.0, 16),
        (1, 8, 0.1, 1),
        (64, 8, 0.0, 1),
        (65536, 1, 600.0, 60),
    ],
)
def test_a_refused_request_comes_back_when_those_before_it_have_begun(
    waiting: int, running: int, each: float, seconds: int
) -> None:
    retry_after = RetryAfter()
    retry_after.add(Timing(queued_seconds=1.0, total_seconds=1.0 + each))
    assert retry_after.seconds_until_room(waiting, running) == seconds


def test_time_in_the_queue_is_no_time_of_running() -> None:
    retry_after = RetryAfter()
    retry_after.add(Timing(queued_seconds=50.0, total_seconds=54.0))
    assert retry_after.seconds_until_room(waiting=6, running=2) == 12


def test_requests_that_never_ran_say_nothing() -> None:
    retry_after = RetryAfter()
    retry_after.add(Timing(total_seconds=60.0))
    assert retry_after.seconds_until_room(waiting=64, running=1) == 1


def test_only_the_latest_requests_count() -> None:
    retry_after = RetryAfter()
    for seconds in (100.0, *[3.0] * WINDOW):
        retry_after.add(Timing(queued_seconds=1.0, total_seconds=1.0 + seconds))
    assert retry_after.seconds_until_room(waiting=1, running=1) == 3
