"""Linear layers by float products, or by instructions that add whole groups of products.

Leaves the products of a tile to `outrider.kernels.jit.dot_tiles`.
"""

from numba import njit

from outrider.kernels.jit.dot_tiles import dot_tile
from outrider.kernels.jit.tiles import TILE_ROWS, TileAt

_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = (dot_tile(rows) for rows in range(1, 9))


@njit(cache=True, nogil=True)
def linear_dot(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute `linear` for kinds that have a product of one group."""
    cuts = (count + TILE_ROWS - 1) // TILE_ROWS
    for block in range(blocks.first, blocks.last):
        row = 0
        for cut in range(cuts):
            here = (count - row) // (cuts - cut)
            at = TileAt(row, block, cut, cuts)
            if here == 1:
                _T1(x, w, out, at)
            elif here == 2:
                _T2(x, w, out, at)
            elif here == 3:
                _T3(x, w, out, at)
            elif here == 4:
                _T4(x, w, out, at)
            elif here == 5:
                _T5(x, w, out, at)
            elif here == 6:
                _T6(x, w, out, at)
            elif here == 7:
                _T7(x, w, out, at)
            else:
                _T8(x, w, out, at)
            row += here
