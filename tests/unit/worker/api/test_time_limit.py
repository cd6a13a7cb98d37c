"""Code that does not end within its time."""

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider.worker.api.time_limit import TookTooLong, time_limit


def loop() -> None:
    while True:
        pass


def test_code_that_loops_is_interrupted_in_its_own_thread() -> None:
    def limited() -> int:
        with time_limit(0.01):
            loop()
        return 0

    with ThreadPoolExecutor(2) as pool:
        loops, other = pool.submit(limited), pool.submit(threading.get_ident)
        assert other.result() != threading.get_ident()
        with pytest.raises(TookTooLong):
            loops.result()


def test_code_that_ends_in_time_is_left_alone_and_so_is_what_follows() -> None:
    for _ in range(100):
        with contextlib.suppress(TookTooLong), time_limit(0.0001):  # as it happens
            pass
    with time_limit(3600.0):
        found = 1
    assert found == 1


def test_an_error_of_the_code_comes_out() -> None:
    with pytest.raises(ZeroDivisionError), time_limit(3600.0):
        _ = 1 / 0
    with pytest.raises(TookTooLong), time_limit(0.01):
        loop()


def test_a_thread_that_was_limited_can_be_profiled() -> None:
    seen: list[str] = []
    for seconds in (3600.0, 0.0):
        with contextlib.suppress(TookTooLong), time_limit(seconds):
            pass
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        threading.get_ident()
    finally:
        sys.setprofile(None)
    assert "c_call" in seen
