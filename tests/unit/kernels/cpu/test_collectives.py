"""A thread or rank that waits for others sleeps after a while, and leaves its core to them."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from outrider.kernels.cpu.collectives import Thread, arrive, await_all, barrier_wait, make_barrier

SLEEPS = 50
PATIENCE = 60
"""Seconds after which a thread that does not sleep is not waited for."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts the sleeps of a thread")


def sleeps(thread: int) -> int:
    """Return how often a thread has slept: spinning and yielding cost none."""
    status = Path(f"/proc/self/task/{thread}/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["voluntary_ctxt_switches"])


def once_this_thread_sleeps(act: Callable[[], object]) -> list[int]:
    """Start a thread that acts when this one has slept SLEEPS times; that number comes to the
    list."""
    waiting = threading.get_native_id()
    wanted, ends, slept = sleeps(waiting) + SLEEPS, time.monotonic() + PATIENCE, list[int]()

    def watch() -> None:
        while sleeps(waiting) < wanted and time.monotonic() < ends:
            time.sleep(0.01)
        slept.append(sleeps(waiting) - wanted + SLEEPS)
        act()

    threading.Thread(target=watch).start()
    return slept


def test_a_rank_sleeps_that_waits_long_for_another() -> None:
    marks = np.ones(32, np.int64)
    arrive(marks, 0, 1)
    await_all(marks, 1)  # compiled
    arrive(marks, 0, 2)
    slept = once_this_thread_sleeps(lambda: arrive(marks, 1, 2))
    await_all(marks, 2)
    assert marks[16] == 2
    assert slept[0] >= SLEEPS


def test_a_thread_sleeps_that_waits_long_for_another() -> None:
    barrier = make_barrier()
    barrier_wait(Thread(barrier, 0, 1))  # compiled
    slept = once_this_thread_sleeps(lambda: barrier_wait(Thread(barrier, 1, 2)))
    barrier_wait(Thread(barrier, 0, 2))
    assert slept[0] >= SLEEPS
