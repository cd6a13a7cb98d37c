"""Virtual time and the token bucket."""

import pytest

from bench.flow.clock import Clock
from bench.flow.token_bucket import TokenBucket


def test_events_come_in_the_order_of_time_and_of_asking() -> None:
    clock, seen = Clock(), []
    clock.at(2.0, lambda: seen.append("late"))
    clock.after(1.0, lambda: seen.append("first"))
    clock.after(1.0, lambda: seen.append("second"))
    clock.run(lambda: len(seen) == 3)
    assert seen == ["first", "second", "late"]
    assert clock.now == 2.0


def test_a_clock_without_events_says_so() -> None:
    with pytest.raises(RuntimeError, match="nothing happens"):
        Clock().run(lambda: False)


def test_a_link_carries_one_message_after_the_other() -> None:
    bucket = TokenBucket(8000)
    assert bucket.leaves(1.0, 500) == pytest.approx(1.5)
    assert bucket.leaves(1.0, 500) == pytest.approx(2.0)
    assert bucket.leaves(5.0, 500) == pytest.approx(5.5)


def test_a_burst_leaves_at_once_after_a_silence() -> None:
    bucket = TokenBucket(8000, burst=600)
    assert bucket.leaves(1.0, 500) == 1.0
    assert bucket.leaves(1.0, 500) == pytest.approx(1.4)


def test_in_the_long_run_a_burst_changes_no_rate() -> None:
    bucket = TokenBucket(8000, burst=600)
    assert max(bucket.leaves(0.0, 100) for _ in range(100)) == pytest.approx(10 - 0.6)
