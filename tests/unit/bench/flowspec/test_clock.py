"""Virtual time, and links in it."""

import pytest

from bench.flowspec.network import Clock, Link
from bench.flowspec.setting import Links


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
    clock, arrived = Clock(), list[tuple[float, str]]()
    link = Link(clock, Links(8000, 0.25), lambda message: arrived.append((clock.now, message)))
    clock.at(1.0, lambda: [link.send(name, 500) for name in ("one", "two")])
    clock.at(5.0, lambda: link.send("three", 500))
    clock.run(lambda: len(arrived) == 3)
    assert arrived == [(1.75, "one"), (2.25, "two"), (5.75, "three")]
    assert link.bytes == 1500
