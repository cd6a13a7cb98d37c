"""Pools whose threads exist from the beginning."""

import os
import sys
import threading

import pytest

from outrider.worker.host.threads import started


def named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def test_all_threads_run_before_there_is_work() -> None:
    pool = started(3, "early")
    assert named("early") == 3
    assert pool.submit(threading.current_thread).result().name.startswith("early")
    pool.shutdown()
    assert named("early") == 0


def test_a_thread_that_the_system_refuses_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, begun = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        started(2, "refused")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_threads_may_stand_back_and_leave_the_others_as_they_are() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = niceness()
    pool = started(1, "nice", nice=7)
    assert pool.submit(niceness).result() == min(before + 7, 19)
    assert niceness() == before
    pool.shutdown()
