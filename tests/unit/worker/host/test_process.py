"""Threads of a pass on processors of their own, with recorded calls in place of the system's."""

import os
import threading
from collections.abc import Iterator

import pytest

from outrider.worker.host.process import keep_apart


@pytest.fixture
def helper() -> Iterator[threading.Thread]:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    yield thread
    ended.set()
    thread.join()


def kept(monkeypatch: pytest.MonkeyPatch, usable: set[int]) -> list[tuple[int, set[int]]]:
    """Return a list to which threads and their processors will be added."""
    found: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *both: found.append(both), raising=False)
    return found


def test_each_thread_gets_a_processor_where_they_are_as_many(
    monkeypatch: pytest.MonkeyPatch, helper: threading.Thread
) -> None:
    found = kept(monkeypatch, {7, 3})
    keep_apart([helper])
    assert found == [(0, {3}), (helper.native_id, {7})]


@pytest.mark.parametrize("usable", [{3}, {3, 5, 7}])
def test_other_numbers_of_processors_change_nothing(
    monkeypatch: pytest.MonkeyPatch, helper: threading.Thread, usable: set[int]
) -> None:
    found = kept(monkeypatch, usable)
    keep_apart([helper])
    assert found == []


def test_a_thread_alone_may_use_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept(monkeypatch, {3})
    keep_apart([])
    assert found == []


def test_a_system_that_refuses_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    helper: threading.Thread,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    kept(monkeypatch, {3, 7})
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    keep_apart([helper])
    assert "Operation not permitted" in caplog.text
