"""Threads of one compiled pass, ranks of one machine: shares of work, barrier, all-reduce.

Leaves starting the threads to the caller, and how parts reach another machine to the worker. All
sums are formed in rank order: a collective that adds on the way (a ring) adds each element in an
order that depends on where it lies in the buffer, so that a row's sum would depend on the rows
before it; here it is ((first + second) + third) + ..., for every element on every rank. A thread
that waits spins for a while, then offers the core to others, then sleeps: threads and ranks that
share a core leave it to those that they wait for.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from outrider.kernels.jit.atomics import increment, read, write
from outrider.kernels.jit.simd import load, store

Floats = NDArray[np.float32]

SPINS = 20_000
"""Looks before the core is offered to others (Zen 5: 30 µs)."""
YIELDS = 500
"""Further looks, one after each offer, before the waiting thread sleeps between two: 0.1 ms where
no thread takes the offer. Three ranks on two cores of a busy machine: 3.0 ms an all-reduce, without
sleep 11.1 ms."""
NAP_MICROSECONDS = 50
_yield_core = types.ExternalFunction("sched_yield", types.int32())
_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


class Thread(NamedTuple):
    """One of the threads that run a pass together."""

    barrier: NDArray[np.int64]
    """State of the barrier, from `make_barrier`."""
    number: int
    threads: int


class Span(NamedTuple):
    """Rows, or blocks of outputs, first … last - 1."""

    first: int
    last: int


class SharedSums(NamedTuple):
    """Memory in which ranks of one machine add up, for one pass; see `all_reduce`."""

    slots: Floats  # [2, ranks, floats]
    marks: NDArray[np.int64]  # [16 * ranks]
    rank: int
    turn: int
    """Turn of the pass's first sum."""


ALONE = SharedSums(np.zeros((2, 1, 0), np.float32), np.zeros(16, np.int64), 0, 1)
"""Shared sums of a model that one process holds."""


def make_barrier() -> NDArray[np.int64]:
    """Make the state of one barrier: arrivals and generation, on cache lines of their own."""
    return np.zeros(32, np.int64)


@njit(cache=True, nogil=True)
def _back_off(looks):  # type: ignore[no-untyped-def]
    """Wait between two looks, of which there were so many: not at all, then ever longer."""
    if looks > SPINS + YIELDS:
        _sleep(NAP_MICROSECONDS)
    elif looks > SPINS:
        _yield_core()


@njit(cache=True, nogil=True)
def share(count, thread):  # type: ignore[no-untyped-def]
    """Return the thread's `Span` of so many rows or blocks."""
    return Span(
        count * thread.number // thread.threads, count * (thread.number + 1) // thread.threads
    )


@njit(cache=True, nogil=True)
def barrier_wait(thread):  # type: ignore[no-untyped-def]
    """Return when all threads have called it; each sees what the others wrote before."""
    if thread.threads == 1:
        return
    barrier = thread.barrier
    generation = read(barrier, 16)
    if increment(barrier, 0) == thread.threads - 1:
        write(barrier, 0, 0)
        write(barrier, 16, generation + 1)
        return
    looks = 0
    while read(barrier, 16) == generation:
        looks += 1
        _back_off(looks)


@njit(cache=True, nogil=True)
def arrive(marks, rank, turn):  # type: ignore[no-untyped-def]
    """Mark that `rank` has written all that it shows in `turn`; marks int64 [16 a rank].

    Unlike `barrier_wait` this does not wait, and works in memory that processes share.
    """
    write(marks, 16 * rank, turn)


@njit(cache=True, nogil=True)
def await_all(marks, turn):  # type: ignore[no-untyped-def]
    """Return when every rank has arrived at `turn`, or at a later one, and show what they wrote."""
    for rank in range(len(marks) // 16):
        looks = 0
        while read(marks, 16 * rank) < turn:
            looks += 1
            _back_off(looks)


@njit(cache=True, nogil=True)
def add_parts(residual, parts, count):  # type: ignore[no-untyped-def]
    """residual[row] += the sum over ranks of parts[rank, row], for `count` rows.

    residual [>= count, width] and parts [ranks, count, width] float32, C-contiguous; width a
    multiple of 16.
    """
    size = count * residual.shape[1]
    for i in range(0, size, 16):
        total = load(parts, i)
        for rank in range(1, parts.shape[0]):
            total = total + load(parts, rank * size + i)
        store(residual, i, load(residual, i) + total)


@njit(cache=True, nogil=True)
def all_reduce(residual, part, span, shared, turn, thread):  # type: ignore[no-untyped-def]
    """residual += the sum of all ranks' `part`, in this thread's `span` of rows.

    residual and part [rows, width] as in `add_parts`; shared.slots float32 [2, ranks, >= rows *
    width] and shared.marks are zeros before turn 1; all ranks call this with the same turns, which
    count up by one. Readers need no mark of their own: a rank that writes for turn t has seen all
    arrive at t - 1, and they did so after they had read what was written for t - 2, in the same
    place.
    """
    here = shared.slots[turn % 2]
    pitch, width = here.shape[1], residual.shape[1]
    for i in range(span.first * width, span.last * width, 16):
        store(here, shared.rank * pitch + i, load(part, i))
    barrier_wait(thread)
    if thread.number == 0:
        arrive(shared.marks, shared.rank, turn)
        await_all(shared.marks, turn)
    barrier_wait(thread)
    for i in range(span.first * width, span.last * width, 16):
        total = load(here, i)
        for other in range(1, here.shape[0]):
            total = total + load(here, other * pitch + i)
        store(residual, i, load(residual, i) + total)
