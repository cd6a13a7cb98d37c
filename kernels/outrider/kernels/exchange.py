"""Adding up what ranks bring, in one order everywhere.

How the parts reach each rank is the caller's. A collective that adds on the way (a ring) adds each
element in an order that depends on where it lies in the buffer, so that a row's sum would depend on
the rows before it; here it is ((first + second) + third) + ..., for every element on every rank.
"""

from numba import njit

from outrider.kernels.simd import load, store


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
