"""Linear layers for few rows: weights stream from memory once, in the order they are packed in.

A pass of 1-16 rows is bound by reading the weights, so they are packed for one sequential stream:
[blocks of 32 outputs][groups of inputs][32 outputs][inputs of a group]. Each (row, output) is one
sum over the inputs in one fixed order, so a row's result cannot depend on the rows beside it.
Measured on a Zen 5 core against oneDNN's prepacked int8 layers (121 layers of SmolLM2-135M, ms):
1 row 3.9 / 7.4, 8 rows 4.9 / 9.7, 16 rows 7.9 / 12.5.
Leaves norms, activations and their quantisation to `outrider.kernels.cpu.elementwise`.
"""

import enum
from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu import int4_packing
from outrider.kernels.cpu.simd import (
    BYTE,
    FLOAT,
    HALF,
    INT,
    LANES,
    LONG,
    broadcast,
    data,
    fused,
    invoke,
    place,
    pointers,
    sizes,
    vector,
)

Floats = NDArray[np.float32]

BLOCK = 32
"""Outputs computed together: two vectors a row keep 8 rows of sums in 32 registers."""
TILE_ROWS = 8
"""Rows that share one read of a block, at most."""
AHEAD = 2048
"""Bytes that weights are prefetched ahead (Zen 5: 8 rows 6.0 -> 4.9 ms, 16 rows 10.5 -> 7.9)."""


class NumericPath(enum.StrEnum):
    """Format of a model's weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    """Of layers; the head's are int8 then."""


class NumericKind(enum.Enum):
    """Inner loop of a path on one machine: formats of weights and activations."""

    FLOAT = (1, np.float32, np.float32)
    """float32 weights and activations."""
    BFLOAT = (1, np.uint16, np.float32)
    """bfloat16 weights, float32 activations: any machine."""
    BFLOAT_PAIR = (2, np.uint16, np.uint16)
    """bfloat16 both, in pairs: AVX512-BF16."""
    CHAR = (1, np.int8, np.float32)
    """int8 weights, float32 activations: any machine."""
    CHAR_QUAD = (4, np.int8, np.uint8)
    """int8 weights, uint8 activations with a scale per row, by fours: AVX512-VNNI."""
    NIBBLE = (1, np.uint8, np.float32)
    """4-bit weights as in `int4_packing`, float32 activations: any machine."""
    NIBBLE_QUAD = (4, np.uint8, np.uint8)
    """4-bit weights as in `int4_packing`, activations as of CHAR_QUAD: AVX512-VNNI."""

    @property
    def group(self) -> int:
        """Inputs that one instruction takes together."""
        return int(self.value[0])

    @property
    def weight(self) -> type:
        """Element type of packed weights."""
        return self.value[1]  # type: ignore[no-any-return]

    @property
    def activation(self) -> type:
        """Element type of activations."""
        return self.value[2]  # type: ignore[no-any-return]

    @property
    def head(self) -> "NumericKind":
        """Kind of the head: rounded to 4 bits it costs as much text as all layers."""
        eight = {
            NumericKind.NIBBLE: NumericKind.CHAR,
            NumericKind.NIBBLE_QUAD: NumericKind.CHAR_QUAD,
        }
        return eight.get(self, self)


def kind_of(path: NumericPath, features: dict[str, bool] | None = None) -> NumericKind:
    """Return the inner loop of a path on this machine, or on one with LLVM CPU `features`."""
    has = features if features is not None else llvmlite.binding.get_host_cpu_features()
    if path is NumericPath.BF16:
        return NumericKind.BFLOAT_PAIR if has.get("avx512bf16") else NumericKind.BFLOAT
    if path is NumericPath.INT8:
        return NumericKind.CHAR_QUAD if has.get("avx512vnni") else NumericKind.CHAR
    if path is NumericPath.INT4:
        return NumericKind.NIBBLE_QUAD if has.get("avx512vnni") else NumericKind.NIBBLE
    return NumericKind.FLOAT


class Packed(NamedTuple):
    """Weights of one layer, ready to stream; inputs and outputs are padded to multiples of 32."""

    weights: NDArray[Any]  # [padded outputs * padded inputs], or `int4_packing`; 64-byte aligned
    scales: Floats  # [padded outputs]; 1 unless int8 or int4
    offsets: NDArray[Any]  # [padded outputs] where sums start, in their type (`_start`)


def padded(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


def aligned(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return zeros that start on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def pack(weight: Floats, kind: NumericKind) -> Packed:
    """Pack a weight matrix [outputs, inputs]; int8 takes one scale per output."""
    rows, columns = padded(weight.shape[0], BLOCK), padded(weight.shape[1], BLOCK)
    full = np.zeros((rows, columns), np.float32)
    full[: weight.shape[0], : weight.shape[1]] = weight
    if kind in (NumericKind.NIBBLE, NumericKind.NIBBLE_QUAD):
        return _pack_int4(full, kind)
    scales = np.ones(rows, np.float32)
    offsets = np.zeros(rows, np.int32)
    coded: NDArray[Any] = full
    if kind.weight is np.int8:
        peak = np.abs(full).max(axis=1)
        scales = np.where(peak > 0, peak / np.float32(127), np.float32(1)).astype(np.float32)
        coded = np.rint(full / scales[:, None]).astype(np.int8)
        if kind is NumericKind.CHAR_QUAD:
            offsets = (-128 * coded.sum(axis=1, dtype=np.int32)).astype(np.int32)
    elif kind.weight is np.uint16:
        coded = to_bfloat(full)
    blocks = coded.reshape(rows // BLOCK, BLOCK, columns // kind.group, kind.group)
    weights = aligned((rows * columns,), kind.weight)
    weights[:] = blocks.transpose(0, 2, 1, 3).reshape(-1)
    return Packed(weights, scales, offsets)


def _pack_int4(full: Floats, kind: NumericKind) -> Packed:
    """Pack four-bit groups; what activations' zero of 128 adds is subtracted by `offsets`."""
    coded = int4_packing.encode(full)
    weights = aligned((coded.stream_size,), np.uint8)
    coded.write(weights, BLOCK)
    shift = np.float32(-128 if kind is NumericKind.NIBBLE_QUAD else 0)
    return Packed(weights, coded.row_scales, shift * coded.sums())


def to_bfloat(values: Floats) -> NDArray[np.uint16]:
    """Return bfloat16 bits, nearest and ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _tile(rows: int) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block; types of x and w choose the kind."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, out: Any, row: Any, block: Any) -> Any:
        """x: `Activations`; w: `Packed`; out [rows, padded outputs]; row: the first."""
        kind = _KINDS[str(w.types[0].dtype), str(x.types[0].dtype)]

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            xs, of_row = pointers(context, builder, sig.args[0], a[0])
            ws, of_output, starts = pointers(context, builder, sig.args[1], a[1])
            target = data(context, builder, sig.args[2], a[2])
            values = builder.extract_value(a[0], 0)
            _, stride = sizes(context, builder, sig.args[0].types[0], values)
            _, out_stride = sizes(context, builder, sig.args[2], a[2])
            row, column = a[3], builder.mul(a[4], LONG(BLOCK))
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(xs, [builder.mul(n, stride)]) for n in numbers]
            ws = builder.gep(ws, [builder.mul(column, stride)])
            cells = _start(builder, kind, rows, builder.gep(starts, [column]))
            groups = builder.udiv(stride, LONG(kind.group))
            with cgutils.for_range(builder, groups, intp=LONG) as loop:
                _step(builder, kind, cells, inputs, ws, loop.index)
            for number, row_cells in zip(numbers, cells, strict=True):
                scale = broadcast(builder, builder.load(builder.gep(of_row, [number])))
                place_of = builder.add(builder.mul(number, out_stride), column)
                finish(builder, row_cells, scale, of_output, column, target, place_of)
            return context.get_dummy_value()

        return types.void(x, w, out, types.intp, types.intp), lower

    return tile


def finish(
    builder: Any, cells: list[Any], scale: Any, of_output: Any, column: Any, out: Any, at: Any
) -> None:
    """Write sums * scale of the output * scale of the row."""
    for j, cell in enumerate(cells):
        value = builder.load(cell)
        if value.type.element == INT:
            value = builder.sitofp(value, vector())
        lane = LONG(j * LANES)
        where = place(builder, of_output, builder.add(column, lane), vector())
        value = builder.fmul(builder.fmul(value, builder.load(where, align=4)), scale)
        builder.store(value, place(builder, out, builder.add(at, lane), vector()), align=4)


def _start(builder: Any, kind: NumericKind, rows: int, starts: Any) -> list[list[Any]]:
    """Make registers of the sums, at their first values."""
    sums = vector(INT if kind is NumericKind.CHAR_QUAD else FLOAT)
    width = range(BLOCK // LANES)
    cells = [[cgutils.alloca_once(builder, sums) for _ in width] for _ in range(rows)]
    for j in width:
        value = ir.Constant(sums, [0.0] * LANES)
        if kind is NumericKind.CHAR_QUAD:
            value = builder.load(place(builder, starts, LONG(j * LANES), sums), align=4)
        for row in cells:
            builder.store(value, row[j])
    return cells


def _step(builder: Any, kind: NumericKind, cells: Any, xs: list[Any], w0: Any, k: Any) -> None:
    """Add one group of inputs: its weights once, times the activations of each row."""
    size = np.dtype(kind.weight).itemsize
    per = LANES * kind.group  # weights of one vector of outputs
    element = {4: FLOAT, 2: HALF, 1: BYTE}[size]
    at = builder.mul(k, LONG(BLOCK * kind.group))
    for line in range(0, BLOCK * kind.group * size, 64):
        ahead = builder.add(at, LONG((AHEAD + line) // size))
        hint = place(builder, w0, ahead, BYTE)
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), hint, INT(0), INT(3), INT(1))
    weights = []
    for j in range(BLOCK // LANES):
        where = place(builder, w0, builder.add(at, LONG(j * per)), vector(element, per))
        weights.append(_widen(builder, kind, builder.load(where, align=min(64, per * size))))
    for x, row in zip(xs, cells, strict=True):
        value = _activation(builder, kind, x, k)
        for cell, w in zip(row, weights, strict=True):
            builder.store(_dot(builder, kind, builder.load(cell), value, w), cell)


def _widen(builder: Any, kind: NumericKind, w: Any) -> Any:
    """Convert weights to what the inner product takes."""
    if kind is NumericKind.BFLOAT:
        bits = builder.shl(builder.zext(w, vector(INT)), ir.Constant(vector(INT), [16] * LANES))
        return builder.bitcast(bits, vector())
    return builder.sitofp(w, vector()) if kind is NumericKind.CHAR else w


def _activation(builder: Any, kind: NumericKind, x: Any, k: Any) -> Any:
    """Load one group of a row's activations into every lane."""
    if kind.group == 1:
        return broadcast(builder, builder.load(builder.gep(x, [k])))
    where = place(builder, x, builder.mul(k, LONG(kind.group)), INT)
    return broadcast(builder, builder.load(where, align=4))


class _Bfloat(ir.Type):
    """LLVM's `bfloat`, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"


_PAIRS = vector(_Bfloat(), 2 * LANES)


def _dot(builder: Any, kind: NumericKind, total: Any, x: Any, w: Any) -> Any:
    """Return total + the products of one group."""
    if kind is NumericKind.CHAR_QUAD:
        name, x = "llvm.x86.avx512.vpdpbusd.512", builder.bitcast(x, vector(BYTE, 64))
        return invoke(builder, name, vector(INT), total, x, w)
    if kind is NumericKind.BFLOAT_PAIR:
        x, w = builder.bitcast(x, _PAIRS), builder.bitcast(w, _PAIRS)
        return invoke(builder, "llvm.x86.avx512bf16.dpbf16ps.512", vector(), total, x, w)
    return fused(builder, x, w, total)


_KINDS = {(np.dtype(k.weight).name, np.dtype(k.activation).name): k for k in NumericKind}
_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = (_tile(rows) for rows in range(1, TILE_ROWS + 1))


@njit(cache=True, nogil=True)
def linear(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute a span of blocks of out[r] = (x[r] @ w.T) * w.scales * x.scales[r], for `count` rows.

    x: `Activations` [rows, padded inputs]; w: `Packed`; out [rows, padded outputs] float32.
    """
    parts = (count + 7) // 8
    for block in range(blocks.first, blocks.last):
        row = 0
        for part in range(parts):
            here = (count - row) // (parts - part)
            if here == 1:
                _T1(x, w, out, row, block)
            elif here == 2:
                _T2(x, w, out, row, block)
            elif here == 3:
                _T3(x, w, out, row, block)
            elif here == 4:
                _T4(x, w, out, row, block)
            elif here == 5:
                _T5(x, w, out, row, block)
            elif here == 6:
                _T6(x, w, out, row, block)
            elif here == 7:
                _T7(x, w, out, row, block)
            else:
                _T8(x, w, out, row, block)
            row += here
