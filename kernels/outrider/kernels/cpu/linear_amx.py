"""Linear layers of int8 by AMX, for two rows and more.

Leaves the products of a tile to `outrider.kernels.jit.amx_tiles`.
"""

from numba import njit

from outrider.kernels.jit.amx import ROWS, release_registers, take_registers
from outrider.kernels.jit.amx_tiles import BytesAt, bytes_tile

AMX_ROWS = 2
"""Rows from which on AMX is used."""

_ONE, _TWO = bytes_tile(1), bytes_tile(2)


@njit(cache=True, nogil=True)
def tiling(count):  # type: ignore[no-untyped-def]
    """Return tiles, and the rows of each: all the same, so that the registers' shapes stay."""
    tiles = (count + ROWS - 1) // ROWS
    return tiles, (count + tiles - 1) // tiles


@njit(cache=True, nogil=True)
def linear_bytes(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute `linear` for int8 weights, of whole registers of inputs."""
    tiles, rows = tiling(count)
    cuts = (tiles + 1) // 2
    take_registers(rows)
    for block in range(blocks.first, blocks.last):
        for cut in range(cuts):
            at = BytesAt(count, rows, block, cut, cuts)
            if 2 * cut + 1 < tiles:
                _TWO(x, w, out, at)
            else:
                _ONE(x, w, out, at)
    release_registers()
