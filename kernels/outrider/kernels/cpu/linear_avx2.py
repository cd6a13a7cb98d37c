"""Linear layers of int8 weights by AVX2's `vpmaddubsw`, for one row or many.

The layout and the results are those of `linear`. Rows come in spans of `SPAN_ROWS`: a block of
weights stays in the nearest cache while a span's rows pass over it. A row alone waits for memory,
and reads several blocks at once. Leaves the products of a tile to
`outrider.kernels.jit.avx2_tiles`.
"""

from numba import njit

from outrider.kernels.cpu.signed_rows import sign_rows
from outrider.kernels.jit.avx2_tiles import StreamTile, avx2_tile

TILE_ROWS = 4
STREAMS = 3
"""Blocks that one row reads in turns, each from its share of them: one sequential stream leaves
bandwidth unused (Zen 3, target of the demo, one thread, `python -m bench.cost_curve`: 12.0 -> 8.4
ms)."""
SPAN_ROWS = 32
"""Rows that pass over a block before the next block: few enough for their bytes to stay in L2."""

_T1 = avx2_tile(1, STREAMS)
_T2, _T3, _T4 = (avx2_tile(rows) for rows in range(2, TILE_ROWS + 1))


@njit(cache=True, nogil=True)
def linear_avx2(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute `linear` for int8 weights with a zero of 128."""
    scales = x.scales  # read in the loop, it would be counted for each tile
    for first in range(0, count, SPAN_ROWS):
        rows = min(SPAN_ROWS, count - first)
        signed = sign_rows(x.values, first, rows)
        if rows == 1:
            _one(signed, first, scales, w, out, blocks)
        else:
            _many(signed, first, scales, w, out, blocks)


@njit(cache=True, nogil=True)
def _one(signed, first, scales, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute a span of one row; each stream reads a share of the blocks."""
    each = (blocks.last - blocks.first + STREAMS - 1) // STREAMS
    for block in range(blocks.first, blocks.first + each):
        _T1(signed, scales, w, out, StreamTile(0, first, block, each, blocks.last - 1, 0, 1))


@njit(cache=True, nogil=True)
def _many(signed, first, scales, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute a span of two rows or more: tiles of two to four."""
    rows = len(signed.counts)
    cuts = (rows + TILE_ROWS - 1) // TILE_ROWS
    for block in range(blocks.first, blocks.last):
        row = 0
        for cut in range(cuts):
            here = (rows - row) // (cuts - cut)
            at = StreamTile(row, first, block, 0, block, cut, cuts)
            if here == 2:
                _T2(signed, scales, w, out, at)
            elif here == 3:
                _T3(signed, scales, w, out, at)
            else:
                _T4(signed, scales, w, out, at)
            row += here
