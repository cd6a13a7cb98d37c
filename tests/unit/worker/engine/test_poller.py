"""Sleeping until a descriptor is readable: which one it was, and for how long."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from outrider.worker.engine.poller import Poller, timespec

LONG_SECONDS = 20.0
SHORT_SECONDS = 0.0002


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    made = [os.pipe() for _ in range(2)]
    yield made
    for end in (end for pipe in made for end in pipe):
        os.close(end)


@pytest.fixture(params=["ppoll", "poll"])
def poller(request: pytest.FixtureRequest, pipes: list[tuple[int, int]]) -> Poller:
    poller = Poller()
    if request.param == "poll":
        poller._ppoll = None  # as where the C library has none
    for reader, _ in pipes:
        poller.register(reader)
    return poller


def test_what_is_readable_is_named(poller: Poller, pipes: list[tuple[int, int]]) -> None:
    (first, write_first), (second, write_second) = pipes
    assert poller.poll(0.0) == set()
    os.write(write_second, b"!")
    assert poller.poll(None) == {second}
    os.write(write_first, b"!")
    assert poller.poll(LONG_SECONDS) == {first, second}
    os.read(second, 1)
    assert poller.poll(-1.0) == {first}


def test_what_is_unregistered_wakes_no_one(poller: Poller, pipes: list[tuple[int, int]]) -> None:
    (first, write_first), (_, write_second) = pipes
    poller.unregister(first)
    os.write(write_first, b"!")
    assert poller.poll(0.0) == set()
    os.write(write_second, b"!")
    assert poller.poll(LONG_SECONDS) == {pipes[1][0]}


def test_a_sleeper_is_woken(poller: Poller, pipes: list[tuple[int, int]]) -> None:
    writing = threading.Timer(0.01, os.write, (pipes[0][1], b"!"))
    writing.start()
    assert poller.poll(LONG_SECONDS) == {pipes[0][0]}
    writing.join()


def test_a_sleep_is_never_shorter_than_it_was_asked_for(poller: Poller) -> None:
    for seconds in (SHORT_SECONDS, 0.0013):
        began = time.monotonic()
        assert poller.poll(seconds) == set()
        assert time.monotonic() - began >= seconds


def test_times_are_not_rounded_to_milliseconds() -> None:
    short, long, past = timespec(SHORT_SECONDS), timespec(2.5), timespec(-3.0)
    assert (short.seconds, short.nanoseconds) == (0, 200_000)
    assert (long.seconds, long.nanoseconds) == (2, 500_000_000)
    assert (past.seconds, past.nanoseconds) == (0, 0)
