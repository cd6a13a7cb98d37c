"""Threads that share one compiled pass: a barrier between its phases.

Who starts the threads is the caller's. Who waits spins for a while, then offers the core to others,
then sleeps: parties that share a core leave it to those that they wait for.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu.simd import LONG, data

SPINS = 20_000
"""Looks before the core is offered to others (Zen 5: 30 µs)."""
YIELDS = 500
"""Further looks, one after each offer, before the waiting thread sleeps between two: 0.1 ms where
nobody takes the offer. Three ranks on two cores of a busy machine: 3.0 ms an exchange, without
sleep 11.1 ms."""
NAP_MICROSECONDS = 50
_yield_core = types.ExternalFunction("sched_yield", types.int32())
_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


def make_gate() -> NDArray[np.int64]:
    """State of one barrier: arrivals and generation, on cache lines of their own."""
    return np.zeros(32, np.int64)


@intrinsic
def _increment(typing: Any, array: Any, index: Any) -> Any:
    """Atomically adds 1; returns the value before."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        return builder.atomic_rmw("add", where, LONG(1), "seq_cst")

    return types.int64(array, types.intp), lower


@intrinsic
def _read(typing: Any, array: Any, index: Any) -> Any:
    """Atomic load."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        return builder.load_atomic(where, "seq_cst", 8)

    return types.int64(array, types.intp), lower


@intrinsic
def _write(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Atomic store."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        builder.store_atomic(a[2], where, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), lower


@njit(cache=True, nogil=True)
def _look_away(looks):  # type: ignore[no-untyped-def]
    """What is done between two looks, of which there were so many: nothing, then ever more."""
    if looks > SPINS + YIELDS:
        _sleep(NAP_MICROSECONDS)
    elif looks > SPINS:
        _yield_core()


@njit(cache=True, nogil=True)
def meet(gate, threads):  # type: ignore[no-untyped-def]
    """Returns when all `threads` have called it; each sees what the others wrote before."""
    if threads == 1:
        return
    generation = _read(gate, 16)
    if _increment(gate, 0) == threads - 1:
        _write(gate, 0, 0)
        _write(gate, 16, generation + 1)
        return
    looks = 0
    while _read(gate, 16) == generation:
        looks += 1
        _look_away(looks)


@njit(cache=True, nogil=True)
def arrive(marks, number, turn):  # type: ignore[no-untyped-def]
    """Says that party `number` has written all that it shows in `turn`; marks int64 [16 a party].

    Unlike `meet` this waits for nobody, and works in memory that processes share.
    """
    _write(marks, 16 * number, turn)


@njit(cache=True, nogil=True)
def await_all(marks, turn):  # type: ignore[no-untyped-def]
    """Returns when every party has arrived at `turn`, or at a later one; sees what they wrote."""
    for number in range(len(marks) // 16):
        looks = 0
        while _read(marks, 16 * number) < turn:
            looks += 1
            _look_away(looks)
