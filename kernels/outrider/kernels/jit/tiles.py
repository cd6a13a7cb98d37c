"""Tiles of linear layers: sums that fit into registers, weights asked for ahead, the end of a sum.

A tile is some rows by one block of 32 outputs, which is cut into parts where registers are few.
"""

from typing import Any, NamedTuple

from llvmlite import ir

from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import Isa
from outrider.kernels.jit.simd import BYTE, INT, LONG, broadcast, invoke, place, vector

AHEAD = 6144
"""Bytes that a block's only tile prefetches ahead (Zen 5, int8 layers of SmolLM2-135M, one
core: 8 rows 6.0 ms with 0, 4.5 with 2048, 3.9 with 6144, 4.2 with 12288)."""
SECOND_CACHE = 2
"""LLVM's word for where to. A core waits for fewer lines of its first cache at a time than memory
could send (Zen 4, 8,960 by 1,536, one row: Q4_K 12 GB/s into the first, 20 into the second)."""


class Registers(NamedTuple):
    """Vector registers of an instruction set."""

    lanes: int
    """Number of int32 or float32 in each register."""
    number: int


REGISTERS = {
    Isa.SSE: Registers(4, 16),
    Isa.AVX2: Registers(8, 16),
    Isa.AVXVNNI: Registers(8, 16),
    Isa.AVX512: Registers(16, 32),
    Isa.AMX: Registers(16, 32),
    Isa.NEON: Registers(4, 32),
    Isa.DOTPROD: Registers(4, 32),
    Isa.I8MM: Registers(4, 32),
}
LANES, NUMBER = REGISTERS[isa.current()]
"""Lanes of this process's vectors, and how many registers there are."""
TILE_ROWS = 8 if NUMBER == 32 else 6
"""Rows that share one read of a block, at most."""
SUMS = NUMBER // 2 if isa.current() is Isa.I8MM else NUMBER * 3 // 4
"""Registers of sums; others hold weights and activations, which I8MM's products take by pairs
(`python -m bench.inner_loops`, int8, instructions per weight with 24: 3 rows 0.371, 6 rows 0.727;
with 16: 0.312, 0.484)."""
DOTS = {
    NumericKind.INT8_AVX512: "llvm.x86.avx512.vpdpbusd.512",
    NumericKind.INT8_AVXVNNI: "llvm.x86.avx512.vpdpbusd.256",
    NumericKind.INT8_DOTPROD: "llvm.aarch64.neon.sdot.v4i32.v16i8",
    NumericKind.INT8_I8MM: "llvm.aarch64.neon.usdot.v4i32.v16i8",
    NumericKind.INT4_AVX512: "llvm.x86.avx512.vpdpbusd.512",
    NumericKind.INT4_AVXVNNI: "llvm.x86.avx512.vpdpbusd.256",
    NumericKind.INT4_DOTPROD: "llvm.aarch64.neon.sdot.v4i32.v16i8",
    NumericKind.INT4_I8MM: "llvm.aarch64.neon.usdot.v4i32.v16i8",
}
"""LLVM's intrinsics that add four products of bytes to each int32: total, then what is unsigned,
int8's activations and int4's weights, then what is signed. `sdot` takes both signed."""


class TileAt(NamedTuple):
    """One of the tiles that go over a block."""

    row: int
    """The first."""
    block: int
    cut: int
    """Its number among the block's tiles."""
    cuts: int
    """Tiles of the block."""


def parts(rows: int, vectors: int = BLOCK // LANES, sums: int = SUMS) -> list[range]:
    """Return which of so many vectors, those of a block's outputs, are summed together by row, in
    `sums` registers at most."""
    width = vectors
    while rows * width > sums and width % 2 == 0:
        width //= 2
    return [range(first, first + width) for first in range(0, vectors, width)]


def order(rows: int, vectors: int) -> list[tuple[int, int]]:
    """Return all (row, vector), so that whichever are fewer stay in registers meanwhile."""
    pairs = [(r, j) for r in range(rows) for j in range(vectors)]
    return pairs if rows > vectors else sorted(pairs, key=lambda pair: pair[1])


def prefetch(builder: Any, weights: Any, size: int) -> None:
    """Ask for the `size` bytes that follow a pointer by `AHEAD`."""
    _ask(builder, place(builder, weights, LONG(AHEAD), BYTE), size)


class Hints(NamedTuple):
    """Prefetches of one pass over a block."""

    start: Any
    """Bytes from the block's first weight to what is asked for first."""
    pace: Any
    """Bytes by which each step asks further on."""
    size: int
    """Bytes that a step asks for."""


def ahead(
    builder: Any, tile: tuple[Any, Any], part: tuple[int, int], size: Any, line: int
) -> Hints:
    """Return the prefetches of a tile's pass over its block.

    tile: `cut` and `cuts` of `TileAt`; part: number of the pass, and how many the tile makes; size:
    bytes of a block; line: bytes of a step. A block's only pass prefetches what it comes to next.
    Where there are more, each prefetches its share of the next block: all but the first find their
    own weights near, and memory would rest meanwhile (Zen 5, layers as above: 12 rows 6.4 -> 4.4
    ms, 16 rows 7.2 -> 5.2, 32 rows 12.1 -> 9.8; Zen 4 held to AVX2, whose tiles make several
    passes, Q4_K of 8,960 by 1,536: 2 rows 0.60 -> 0.40 ms, 4 rows 0.83 -> 0.63, int8 0.67).
    """
    (cut, cuts), (own, each) = tile, part
    number = builder.add(builder.mul(cut, LONG(each)), LONG(own))
    count = builder.mul(cuts, LONG(each))
    alone = builder.icmp_signed("==", count, LONG(1))
    share = builder.sdiv(builder.mul(number, size), count)
    start = builder.select(alone, LONG(AHEAD), builder.add(size, share))
    return Hints(start, builder.sdiv(LONG(line), count), line // each)


def prefetch_at(builder: Any, block: Any, hints: Hints, step: Any) -> None:
    """Ask for what is due at a step; block: its first weight."""
    first = builder.add(hints.start, builder.mul(step, hints.pace))
    _ask(builder, builder.gep(builder.bitcast(block, BYTE.as_pointer()), [first]), hints.size)


def _ask(builder: Any, first: Any, size: int) -> None:
    """Ask for `size` bytes from a pointer on, a cache line at a time."""
    for part in range(0, size, 64):
        hint = builder.gep(first, [LONG(part)])
        ways = INT(0), INT(SECOND_CACHE), INT(1)
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), hint, *ways)


def dot(builder: Any, kind: NumericKind, total: Any, unsigned: Any, signed: Any) -> Any:
    """Return total + products of four bytes each in a lane."""
    return invoke(builder, DOTS[kind], total.type, total, unsigned, signed)


def stream_blocks(builder: Any, block: Any, at: tuple[Any, Any], streams: int) -> list[Any]:
    """Return the block of each stream that a tile reads in turns.

    block: the first stream's; at: blocks from one stream to the next, and the one that no stream
    goes beyond: a stream that is through repeats it.
    """
    each, last = at
    found = []
    for stream in range(streams):
        own = builder.add(block, builder.mul(each, LONG(stream)))
        found.append(builder.select(builder.icmp_signed("<", own, last), own, last))
    return found


def finish(builder: Any, sums: list[Any], scale: Any, of_output: Any, out: Any) -> None:
    """Write sums * scale of the output * scale of the row; pointers are to the first of each."""
    for j, value in enumerate(sums):
        lanes = vector(count=value.type.count)
        if value.type.element == INT:
            value = builder.sitofp(value, lanes)
        at = LONG(j * lanes.count)
        scales = builder.load(place(builder, of_output, at, lanes), align=4)
        value = builder.fmul(builder.fmul(value, scales), broadcast(builder, scale, lanes.count))
        builder.store(value, place(builder, out, at, lanes), align=4)
