"""Engines that sleep at both ends of a link, whatever carries it."""

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.worker.link.link_pairs import (
    LONG_SECONDS,
    asleep,
    commit,
    distributed_pair,
    grow,
    joined_processes,
    shared_memory_pair,
)
from tests.unit.worker.link.test_wire import plain

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")


@pytest.fixture(params=[pytest.param("shared memory", marks=LINUX), "torch.distributed"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    with contextlib.ExitStack() as stack:
        if request.param == "shared memory":
            yield stack.enter_context(shared_memory_pair())
        else:
            processes = stack.enter_context(joined_processes())
            yield stack.enter_context(distributed_pair(processes))


def await_messages(end: Any) -> list[object]:
    while not (found := [plain(m) for part in end.receive() for m in part.messages]):
        asleep(end)
    return found


def test_no_wake_up_is_missed_however_two_threads_interleave(pair: tuple[Any, Any]) -> None:
    """Each answers what the other sends, asleep in between: a missed wake-up would hold both."""
    target, draft = pair
    turns = 300

    def answer() -> None:
        for turn in range(turns):
            await_messages(draft)
            draft.send([grow(1 + 3 * turn)])

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        for turn in range(turns):
            target.send([commit(turn)])
            assert await_messages(target) == [plain(grow(1 + 3 * turn))]
        answered.result(LONG_SECONDS)
