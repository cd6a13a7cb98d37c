"""Both ends of a link in one process, by what carries it, and what tests do with them."""

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from outrider.worker.link import memory_file, shared_memory
from outrider.worker.link.wire import Commit, Grow
from outrider.worker.messages import Identity
from outrider.worker.tree.growth import Growth
from tests.unit.worker.link.test_wire import plain

CONTEXT = 200_000
IDENTITY = Identity("revision", 1, CONTEXT, 64, np.ones(1, np.uint64), sessions=2)
TARGETS, DRAFTS = 3, 8
"""Numbers of the link, at each of its ends."""
LONG_SECONDS = 20.0


class Sleeper(Protocol):
    """An end of a link whose engine sleeps while nothing comes."""

    def fileno(self) -> int: ...
    def fall_asleep(self) -> bool: ...
    def awake(self, woken: bool) -> None: ...


@contextlib.contextmanager
def shared_memory_pair() -> Iterator[
    tuple[shared_memory.SharedMemoryLink, shared_memory.SharedMemoryLink]
]:
    """The target's end and the draft's."""
    descriptor = memory_file.create()
    bells = socket.socketpair()
    for bell in bells:
        bell.setblocking(False)
    ends = (
        shared_memory.target_end(TARGETS, descriptor, bells[0], IDENTITY),
        shared_memory.draft_end(DRAFTS, descriptor, bells[1], IDENTITY),
    )
    os.close(descriptor)
    yield ends
    for end in ends:
        end.close()


def grow(first_id: int = 1, count: int = 3) -> Grow:
    zeros = np.zeros(count, np.int64)
    return Grow(1, Growth(5, first_id, zeros, zeros.astype(np.int32), zeros.astype(np.float32)))


def commit(position: int, count: int = 1) -> Commit:
    return Commit(1, position, np.arange(count, dtype=np.int32))


def asleep(end: Sleeper) -> None:
    """Sleeps until the other end wakes this one, if there is nothing to do before."""
    woken: list[object] = []
    poll = select.poll()
    poll.register(end, select.POLLIN)
    if end.fall_asleep():
        woken = list(poll.poll(LONG_SECONDS * 1000))
        assert woken, "nobody woke it"
    end.awake(bool(woken))


def await_messages(end: Any) -> list[object]:
    """Sleep until there are some."""
    while not (found := [plain(m) for part in end.receive() for m in part.messages]):
        asleep(end)
    return found


def assert_no_wake_up_is_missed(target: Any, draft: Any) -> None:
    """Answer by turns, asleep in between: a missed wake-up would hold both."""
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
