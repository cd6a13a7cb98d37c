"""Matrices of quants in groups, as model files have them, and their layout for a pass.

A weight is scale * (quant - zero) + least, where scale and least belong to a group of 16 or 32
inputs of one output. They are half-precision numbers, or nested: bytes times half-precision
numbers that several groups share. So every format of GGUF up to eight bits, and those of AWQ and
GPTQ, are held as they are, and so are floats of 16 bits, as quants of a scale of 1. Any other float
matrix is rounded. Leaves products to `linear_grouped`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.packing import BLOCK, aligned, padded

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Bytes = NDArray[np.int8]
Quants = NDArray[np.uint8] | NDArray[np.uint16]

GROUP = 32
"""Inputs of a group of a float matrix that is rounded; of 64, SmolLM2's Q4_1 lost 0.37 nats a
token, of 32 nothing."""
MOST = 15
"""Rows of a float matrix are scaled to just under 2^15: half precision is then short of range at
neither end."""


class Layout(NamedTuple):
    """Kind of quants and scales."""

    bits: int
    """Bits of a quant: 4 or 8, or 16 where it is a float."""
    group: int
    """Inputs that share a scale: 16 or 32."""
    nested: bool
    """True where a group's scale is a byte times a number that several groups share."""
    least: bool
    """True where groups have a least value."""
    bfloat: bool = False
    """True for bfloat16, false for half precision, where quants are floats."""

    @property
    def floats(self) -> bool:
        """True where quants are floats."""
        return self.bits == 16

    @property
    def zero(self) -> int:
        """The quant of a weight without its least value that is 0."""
        if self.floats:
            return 0
        if self.nested:
            return 0 if self.least else 32
        return 128 if self.bits == 8 else 8 * (not self.least)

    @property
    def narrow(self) -> int:
        """Products of pairs of quants and signed bytes that an int16 can add up: quants are at most
        15 in four bits, 63 in nested eight, else 255, taken as signed bytes."""
        if self.bits == 4:
            return 8
        return 2 if self.nested else 1

    @property
    def name(self) -> str:
        """Its fields as one word."""
        kind = "bf" if self.bfloat else "f" if self.floats else "q"
        return f"{kind}{self.bits}_{self.group}{'_nested' * self.nested}{'_least' * self.least}"

    @property
    def quant_bytes(self) -> int:
        """Bytes of a block's quants of one group."""
        return BLOCK * self.group * self.bits // 8

    def header(self, span: int) -> int:
        """Bytes of a block's scales and least values of `span` groups."""
        return BLOCK * (1 + self.least) * (2 + span * self.nested)

    def span_bytes(self, span: int) -> int:
        """Bytes of a block's `span` groups: what shares a half-precision scale."""
        return self.header(span) + span * self.quant_bytes


LAYOUTS = (
    Layout(4, 32, nested=False, least=False),
    Layout(4, 32, nested=False, least=True),
    Layout(4, 32, nested=True, least=True),
    Layout(8, 32, nested=False, least=False),
    Layout(8, 32, nested=False, least=True),
    Layout(8, 32, nested=True, least=True),
    Layout(8, 16, nested=True, least=False),
    Layout(16, 32, nested=False, least=False),
    Layout(16, 32, nested=False, least=False, bfloat=True),
)
"""GGUF's Q4_0, Q4_1, Q4_K (and AWQ, GPTQ), Q8_0 (and Q5_0), Q5_1, Q5_K, Q6_K, F16, BF16."""
Q4_0, Q4_1, Q4_NESTED, Q8_0, Q8_LEAST, Q8_NESTED, Q8_16, F16, BF16 = LAYOUTS


@dataclass(frozen=True, slots=True)
class Grouped:
    """A matrix [outputs, inputs] of quants in groups along its inputs."""

    layout: Layout
    quants: Quants  # [outputs, inputs]
    scales: Halves  # [outputs, spans]
    least: Halves | None = None  # [outputs, spans]
    inner_scales: Bytes | None = None  # [outputs, groups] of nested ones; 0 to 63 beside least
    inner_least: Bytes | None = None  # [outputs, groups] of nested ones
    row_scales: Floats | None = None  # [outputs] what all of an output is multiplied by

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        outputs, inputs = self.quants.shape
        return outputs, inputs

    def __len__(self) -> int:
        return len(self.quants)

    @property
    def span(self) -> int:
        """Groups that share a half-precision scale."""
        groups, spans = self.shape[1] // self.layout.group, int(self.scales.shape[1])
        return groups // spans

    @property
    def stream_size(self) -> int:
        """Bytes that `write` fills."""
        spans = padded(len(self), BLOCK) // BLOCK * int(self.scales.shape[1])
        return spans * self.layout.span_bytes(self.span)

    def floats(self) -> Floats:
        """Return the weights [outputs, inputs]."""
        outputs, inputs = self.shape
        groups = self._numbers().reshape(outputs, -1, self.layout.group)
        groups *= self._of_groups(self.scales, self.inner_scales)
        if self.least is not None:
            groups += self._of_groups(self.least, self.inner_least)
        values = groups.reshape(outputs, inputs)
        return values if self.row_scales is None else values * self.row_scales[:, None]

    def _numbers(self) -> Floats:
        """Return the quants less their zero, or the floats that they are [outputs, inputs]."""
        if self.layout.bfloat:
            return (self.quants.astype(np.uint32) << 16).view(np.float32)
        if self.layout.floats:
            return self.quants.view(np.float16).astype(np.float32)
        return self.quants.astype(np.float32) - np.float32(self.layout.zero)

    def _of_groups(self, halves: Halves, inner: Bytes | None) -> Floats:
        """Return a number for each group [outputs, groups, 1]."""
        each = np.repeat(halves.astype(np.float32), self.span, axis=1)
        return (each if inner is None else each * inner)[..., None]

    def outputs(self, index: NDArray[np.int64]) -> "Grouped":
        """Return the outputs of an index; -1: an output of 0."""
        present = (index >= 0)[:, None]

        def picked(array: Any) -> Any:
            return array[index] if present.all() else (array[index] * present).astype(array.dtype)

        numbers = ("scales", "least")  # without these, nothing is left of an output
        return self._each(lambda name, array: picked(array) if name in numbers else array[index])

    def joins(self, other: "Grouped") -> bool:
        """True for a matrix whose outputs can follow these."""
        form = self.layout, self.span, self.row_scales is None
        return form == (other.layout, other.span, other.row_scales is None)

    def joined(self, other: "Grouped") -> "Grouped":
        """Return these outputs and those of a matrix that `joins`."""
        return self._each(lambda name, array: np.concatenate([array, getattr(other, name)]))

    def inputs(self, index: NDArray[np.int64]) -> "Grouped":
        """Return the inputs of an index, whole groups of them; -1: an input of 0.

        Raises `ValueError` for groups that the index cuts.
        """
        group = self.layout.group
        groups = index.reshape(-1, group) if index.size % group == 0 else index[None]
        first = groups[:, 0] // group
        here = first >= 0
        whole = np.where(here, first * group, -1)[:, None] + here[:, None] * np.arange(group)
        if groups.shape[1] != group or not np.array_equal(groups, whole):
            raise ValueError(f"its inputs are not whole groups of {group}")
        span = _common_span(first, self.span)
        spans = np.repeat(np.arange(self.scales.shape[1]), self.span // span)[first[::span] // span]
        present = here.astype(np.int8)

        def halves(array: Halves | None) -> Any:
            return None if array is None else array[:, spans] * present[::span]

        def inner(array: Bytes | None) -> Any:
            return None if array is None else array[:, first] * present

        return replace(
            self,
            quants=self.quants[:, index],
            scales=halves(self.scales),
            least=halves(self.least),
            inner_scales=inner(self.inner_scales),
            inner_least=inner(self.inner_least),
        )

    def padded(self, outputs: int) -> "Grouped":
        """Return it with outputs of 0 up to a number of them."""
        index = np.arange(outputs)
        return self.outputs(np.where(index < len(self), index, -1)) if outputs > len(self) else self

    def _each(self, change: Callable[[str, Any], Any]) -> "Grouped":
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        there = {name: array for name, array in arrays.items() if array is not None}
        return replace(self, **{name: change(name, array) for name, array in there.items()})

    def write(self, stream: NDArray[np.uint8]) -> None:
        """Fill `stream` with [blocks of outputs][spans][scales, least values, inner ones, quants].

        Quants of four bits are lines of 64 bytes, [8 inputs at a time][16 outputs at a time]: four
        bytes of an output hold inputs 0-3 in their low halves and inputs 4-7 in their high. Quants
        of eight bits are [4 inputs at a time][32 outputs][4], those of 16 [inputs][32 outputs].
        """
        if not len(self):
            return
        full = self.padded(padded(len(self), BLOCK))
        blocks, spans = len(full) // BLOCK, self.scales.shape[1]
        parts = stream.reshape(blocks, spans, self.layout.span_bytes(self.span))
        at = 0
        for numbers in (full.scales, full.least, full.inner_scales, full.inner_least):
            if numbers is not None:
                lines = numbers.reshape(blocks, BLOCK, spans, -1).transpose(0, 2, 3, 1)
                raw = np.ascontiguousarray(lines).view(np.uint8).reshape(blocks, spans, -1)
                parts[..., at : at + raw.shape[2]] = raw
                at += raw.shape[2]
        quants = full.quants.reshape(blocks, BLOCK, spans, -1)
        _WRITERS[self.layout.bits](quants, parts[..., at:])


class GroupedWeights(NamedTuple):
    """One layer's weights, ready to stream; segments of them may differ in layout."""

    weights: NDArray[np.uint8]  # 64-byte aligned
    scales: Floats  # [padded outputs] of each output
    segments: NDArray[np.int64]  # [segments, 5] blocks from and to, first byte, layout, span
    marks: tuple[NDArray[Any], ...]
    """Layouts that occur, as `marks` returns them: code is compiled for these alone."""


class GroupedStack(NamedTuple):
    """`GroupedWeights` of one kind of layer, over all layers."""

    weights: NDArray[np.uint8]
    scales: Floats  # [layers, padded outputs]
    segments: NDArray[np.int64]  # [layers, segments, 5]
    marks: tuple[NDArray[Any], ...]


FIRST, LAST, OFFSET, LAYOUT, SPAN = range(5)
"""Columns of segments."""


def layer_of(stack: GroupedStack, layer: int) -> GroupedWeights:
    """Return the weights of one layer."""
    return GroupedWeights(stack.weights, stack.scales[layer], stack.segments[layer], stack.marks)


def stack_grouped(layers: Iterable[Sequence[Grouped]], count: int) -> GroupedStack:
    """Lay out `count` layers of one shape, each of matrices below each other of which all but the
    last are whole blocks. One layer is asked for at a time."""
    weights, at = aligned((0,), np.uint8), 0
    segments: list[list[tuple[int, ...]]] = []
    scales: list[Floats] = []
    for parts in layers:
        size = sum(part.stream_size for part in parts)
        if at + size > len(weights):  # memory that is not written to is never taken
            most = sum(padded(len(part), BLOCK) * part.shape[1] for part in parts)
            left = max(size, 5 * most // 4) * (count - len(segments))
            weights = _longer(weights, at, at + left)
        segments.append(_segments(parts, at))
        for part in parts:
            part.write(weights[at : at + part.stream_size])
            at += part.stream_size
        scales.append(np.concatenate([_row_scales(part) for part in parts]))
    table = np.zeros((len(segments), max(map(len, segments)), 5), np.int64)
    for own, rows in zip(table, segments, strict=True):
        own[: len(rows)] = rows
    return GroupedStack(weights[:at], np.stack(scales), table, marks(table))


def _longer(weights: NDArray[np.uint8], used: int, size: int) -> NDArray[np.uint8]:
    longer = aligned((size,), np.uint8)
    longer[:used] = weights[:used]
    return longer


def marks(segments: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Return an empty array for each layout in segments, whose type is the layout's."""
    used = segments.reshape(-1, 5)
    numbers = sorted({*used[used[:, LAST] > 0, LAYOUT].tolist()})
    return tuple(np.zeros(0, np.dtype([(LAYOUTS[n].name, np.uint8)])) for n in numbers)


def _segments(parts: Sequence[Grouped], offset: int) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    block = 0
    for part in parts:
        last = block + padded(len(part), BLOCK) // BLOCK
        rows.append((block, last, offset, LAYOUTS.index(part.layout), part.span))
        block, offset = last, offset + part.stream_size
    return rows


def _row_scales(part: Grouped) -> Floats:
    scales = np.ones(padded(len(part), BLOCK), np.float32)
    if part.row_scales is not None:
        scales[: len(part)] = part.row_scales
    return scales


_ARRAYS = ("quants", "scales", "least", "inner_scales", "inner_least", "row_scales")


def _common_span(groups: NDArray[np.int64], span: int) -> int:
    """Return the largest divisor of `span` by which an index of groups goes on in whole runs."""
    for size in (n for n in range(span, 0, -1) if span % n == 0 and groups.size % n == 0):
        runs = groups.reshape(-1, size)
        first = runs[:, :1]
        whole = np.where(first >= 0, first + np.arange(size), -1)
        if np.array_equal(runs, whole) and not (first[first >= 0] % size).any():
            return size
    return 1


def _four_bits(quants: NDArray[np.uint8], to: NDArray[np.uint8]) -> None:
    """Write quants [blocks, 32, spans, inputs] to [blocks, spans, bytes]."""
    blocks, _, spans, inputs = quants.shape
    cut = quants.reshape(blocks, BLOCK, spans, inputs // 8, 2, 4)
    low, high = cut[..., 0, :], cut[..., 1, :]
    lines = (low | high << 4).transpose(0, 2, 3, 1, 4)  # [blocks, spans, 8 inputs, outputs, 4]
    to.reshape(lines.shape)[:] = lines


def _eight_bits(quants: NDArray[np.uint8], to: NDArray[np.uint8]) -> None:
    """Write quants as `_four_bits` does."""
    blocks, _, spans, inputs = quants.shape
    lines = quants.reshape(blocks, BLOCK, spans, inputs // 4, 4).transpose(0, 2, 3, 1, 4)
    to.reshape(lines.shape)[:] = lines


def _sixteen_bits(quants: NDArray[np.uint16], to: NDArray[np.uint8]) -> None:
    """Write quants as `_four_bits` does."""
    lines = np.ascontiguousarray(quants.transpose(0, 2, 3, 1))  # [blocks, spans, inputs, outputs]
    to[:] = lines.view(np.uint8).reshape(to.shape)


_WRITERS: Mapping[int, Callable[[Any, NDArray[np.uint8]], None]] = MappingProxyType(
    {4: _four_bits, 8: _eight_bits, 16: _sixteen_bits}
)


def as_it_is(matrix: Floats) -> Grouped | None:
    """Return a float matrix, whose inputs are whole groups, with every value as it is; None where
    neither half precision nor bfloat16 has them all."""
    with np.errstate(over="ignore"):
        halves = matrix.astype(np.float16)
    if np.array_equal(halves, matrix) and np.isfinite(halves).all():
        return _of_floats(F16, halves.view(np.uint16))
    bits = matrix.view(np.uint32)
    if (bits & 0xFFFF).any():
        return None
    return _of_floats(BF16, (bits >> 16).astype(np.uint16))


def _of_floats(layout: Layout, bits: NDArray[np.uint16]) -> Grouped:
    outputs, inputs = bits.shape
    return Grouped(layout, bits, np.ones((outputs, inputs // layout.group), np.float16))


def encode(matrix: Floats) -> Grouped:
    """Round a float matrix, whose inputs are whole groups, to 16 steps between the least and the
    largest of each group."""
    row_scales, groups = _scaled(matrix)
    least = groups.min(axis=2)
    scales = ((groups.max(axis=2) - least) / np.float32(15)).astype(np.float16)
    halves = least.astype(np.float16)
    quants = _rounded(groups - halves.astype(np.float32)[..., None], scales, 0, 15)
    return Grouped(Q4_1, quants, scales, halves, row_scales=row_scales)


def encode_bytes(matrix: Floats) -> Grouped:
    """Round a float matrix, whose inputs are whole groups, to 255 steps around 0 in each group."""
    row_scales, groups = _scaled(matrix)
    scales = (np.abs(groups).max(axis=2) / np.float32(127)).astype(np.float16)
    quants = _rounded(groups, scales, -127, 127)
    return Grouped(Q8_0, quants ^ np.uint8(128), scales, row_scales=row_scales)


def _scaled(matrix: Floats) -> tuple[Floats, Floats]:
    """Return powers of two [outputs], and the matrix divided by them [outputs, groups, GROUP]."""
    exponents = np.frexp(np.abs(matrix).max(axis=1))[1]
    row_scales = np.ldexp(np.float32(1), np.maximum(exponents, -100) - MOST)
    return row_scales, (matrix / row_scales[:, None]).reshape(
        len(matrix), matrix.shape[1] // GROUP, GROUP
    )


def _rounded(groups: Floats, scales: Halves, least: int, most: int) -> NDArray[np.uint8]:
    wide = scales.astype(np.float32)[..., None]
    steps = np.rint(groups / np.where(wide > 0, wide, np.float32(1)))
    quants = np.clip(steps, least, most).astype(np.int8).view(np.uint8)
    return quants.reshape(len(groups), groups.shape[1] * GROUP)
