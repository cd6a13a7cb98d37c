"""Passes that never end are noticed; others are not."""

import threading

from outrider.worker.engine.heartbeat import MAX_SLOWDOWN
from outrider.worker.parallel import watchdog
from outrider.worker.parallel.watchdog import Watchdog


def test_a_pass_that_does_not_end_is_noticed_once() -> None:
    noticed: list[str] = []
    called = threading.Event()

    def expired(what: str) -> None:
        noticed.append(what)
        called.set()

    limit = Watchdog(expired)
    limit.seconds = 0.0
    with limit:
        assert called.wait(30.0)
    limit.close()
    assert noticed == ["a pass has not ended within 0 s"]


def test_nothing_is_noticed_between_passes() -> None:
    noticed: list[str] = []
    limit = Watchdog(noticed.append)
    with limit:
        pass
    limit.seconds = 0.0
    following = threading.Event()
    other = Watchdog(lambda what: following.set())
    other.seconds = 0.0
    with other:  # by the time that this one is noticed, the first has looked too
        assert following.wait(30.0)
    limit.close()
    other.close()
    assert noticed == []


def test_what_was_measured_bounds_a_pass_with_room_for_a_busy_machine() -> None:
    limit = Watchdog(lambda what: None)
    assert limit.seconds == watchdog.FIRST_SECONDS
    limit.set_limit(0.01)
    assert limit.seconds == watchdog.MIN_SECONDS
    limit.set_limit(2.0)
    assert limit.seconds == 2.0 * MAX_SLOWDOWN
    limit.close()
