"""A thread or rank that waits for others sleeps after a while, and leaves its core to them."""

import resource
import sys
import threading

import numpy as np
import pytest

from outrider.kernels.cpu.collectives import Thread, arrive, await_all, barrier_wait, make_barrier

LATE = 0.5
"""Seconds."""
SLEEPS = 50
"""Fewer than there are in that time, however busy the machine."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts the sleeps of a thread")


def sleeps() -> int:
    """Of this thread, so far: spinning and yielding cost none."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def test_a_rank_sleeps_that_waits_long_for_another() -> None:
    marks = np.ones(32, np.int64)
    arrive(marks, 0, 1)
    await_all(marks, 1)  # compiled
    arrive(marks, 0, 2)
    other = threading.Timer(LATE, arrive, (marks, 1, 2))
    other.start()
    before = sleeps()
    await_all(marks, 2)
    slept = sleeps() - before
    other.join()
    assert marks[16] == 2
    assert slept > SLEEPS


def test_a_thread_sleeps_that_waits_long_for_another() -> None:
    barrier = make_barrier()
    barrier_wait(Thread(barrier, 0, 1))  # compiled
    other = threading.Timer(LATE, barrier_wait, (Thread(barrier, 1, 2),))
    other.start()
    before = sleeps()
    barrier_wait(Thread(barrier, 0, 2))
    slept = sleeps() - before
    other.join()
    assert slept > SLEEPS
