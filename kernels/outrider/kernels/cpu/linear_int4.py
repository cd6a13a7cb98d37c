"""Linear layers whose weights are four bits, in groups of 32 inputs; otherwise as `linear`.

A pass reads five eighths of what it does with int8. Leaves the products of a tile to
`outrider.kernels.jit.int4_tiles`, the layout of weights to `int4_packing`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from outrider.kernels.cpu.int4_packing import GROUP
from outrider.kernels.jit.int4_tiles import int4_tile
from outrider.kernels.jit.tiles import TILE_ROWS, TileAt


class GroupedActivations(NamedTuple):
    """`Activations`, and the sums that groups' least values are multiplied by."""

    values: NDArray[Any]  # [rows, padded inputs]
    scales: NDArray[np.float32]  # [rows]
    sums: NDArray[np.float32]  # [rows, groups] of values


_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = (int4_tile(rows) for rows in range(1, 9))


@njit(cache=True, nogil=True)
def linear_int4(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute `linear` for weights of four bits."""
    values = x.values
    sums = np.empty((count, values.shape[1] // GROUP), np.float32)
    for row in range(count):
        for group in range(sums.shape[1]):
            sums[row, group] = values[row, group * GROUP : (group + 1) * GROUP].sum()
    grouped = GroupedActivations(values, x.scales, sums)
    cuts = (count + TILE_ROWS - 1) // TILE_ROWS
    for block in range(blocks.first, blocks.last):
        row = 0
        for cut in range(cuts):
            here = (count - row) // (cuts - cut)
            at = TileAt(row, block, cut, cuts)
            if here == 1:
                _T1(grouped, w, out, at)
            elif here == 2:
                _T2(grouped, w, out, at)
            elif here == 3:
                _T3(grouped, w, out, at)
            elif here == 4:
                _T4(grouped, w, out, at)
            elif here == 5:
                _T5(grouped, w, out, at)
            elif here == 6:
                _T6(grouped, w, out, at)
            elif here == 7:
                _T7(grouped, w, out, at)
            else:
                _T8(grouped, w, out, at)
            row += here
