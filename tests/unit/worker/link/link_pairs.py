"""Both ends of a link in one process, by what carries it, and what tests do with them."""

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch.distributed as dist

from outrider.worker.link import distributed, memory_file, shared_memory
from outrider.worker.link.process_pair import ProcessPair
from outrider.worker.link.wire import Commit, Grow
from outrider.worker.messages import Identity
from outrider.worker.tree.growth import Growth

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


@contextlib.contextmanager
def joined_processes() -> Iterator[tuple[ProcessPair, ProcessPair]]:
    """Numbers 0 and 1 of a group."""
    store = dist.HashStore()
    with ThreadPoolExecutor(2) as pool:
        joining = [
            pool.submit(ProcessPair, store, number, "127.0.0.1", LONG_SECONDS)
            for number in range(2)
        ]
        first, second = (one.result(LONG_SECONDS) for one in joining)
    yield first, second
    first.close()
    second.close()


@contextlib.contextmanager
def distributed_pair(
    processes: tuple[ProcessPair, ProcessPair],
) -> Iterator[tuple[distributed.DistributedLink, distributed.DistributedLink]]:
    """The target's end and the draft's."""
    ends = (
        distributed.target_end(TARGETS, processes[0], IDENTITY),
        distributed.draft_end(DRAFTS, processes[1], IDENTITY),
    )
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
