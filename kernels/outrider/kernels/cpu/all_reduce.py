"""Adding up what ranks bring, in one order everywhere.

How parts reach another machine is the caller's; ranks of one machine show them in shared memory. A
collective that adds on the way (a ring) adds each element in an order that depends on where it lies
in the buffer, so that a row's sum would depend on the rows before it; here it is
((first + second) + third) + ..., for every element on every rank.
"""

from numba import njit

from outrider.kernels.cpu.barrier import arrive, await_all, meet
from outrider.kernels.cpu.simd import load, store


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
def swap_parts(  # type: ignore[no-untyped-def]
    residual, part, first, last, slots, marks, turn, rank, gate, thread, threads
):
    """residual += the sum of all ranks' `part`, in rows first..last-1, which are this thread's.

    residual and part [rows, width] as in `add_parts`; slots float32 [2, ranks, >= rows * width] and
    marks int64 [16 * ranks] are shared by all ranks, zeros before turn 1; all ranks call this with
    the same turns, which count up by one. Nobody needs to say that it has read: who writes for turn
    t has seen all arrive at t - 1, and they did so after they had read what was written for t - 2,
    in the same place.
    """
    here = slots[turn % 2]
    pitch, width = here.shape[1], residual.shape[1]
    for i in range(first * width, last * width, 16):
        store(here, rank * pitch + i, load(part, i))
    meet(gate, threads)
    if thread == 0:
        arrive(marks, rank, turn)
        await_all(marks, turn)
    meet(gate, threads)
    for i in range(first * width, last * width, 16):
        total = load(here, i)
        for other in range(1, here.shape[0]):
            total = total + load(here, other * pitch + i)
        store(residual, i, load(residual, i) + total)
