"""Linear layers and their neighbours on one instruction set, for `test_isa`: written to a file.

python integer_products.py FILE: arrays by name, from the same inputs in every process.
"""

import itertools
import sys

import numpy as np

from outrider.kernels.cpu import reference
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import SILU, Activations, NormSize, gated, norms
from outrider.kernels.cpu.grouped_packing import (
    LAYOUTS,
    Grouped,
    GroupedWeights,
    Layout,
    encode_bytes,
    layer_of,
    stack_grouped,
)
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import BLOCK, Packed

ROWS = (1, 2, 3, 4, 5, 7, 8, 19, 64)
OUTPUTS, INPUTS = 96, 192
SPANS = 256, 128, 32
"""Inputs that share a half-precision scale."""


def main(file: str) -> None:
    """Compute everything and save it."""
    found: dict[str, np.ndarray] = {}
    for path in (NumericPath.INT8, NumericPath.INT4):
        kind = kind_of(path)
        found[f"{path} kind"] = np.array(kind.name)
        for rows in ROWS:
            found[f"{path} {rows}"] = products(kind, rows)
        found[f"{path} extremes"] = extremes(kind, reference.packed_layer(weights(), kind))
    matrix = layer_of(stack_grouped([[encode_bytes(weights())]], 1), 0)
    found["quants of a byte"] = extremes(kind_of(NumericPath.INT4), matrix)
    for layout, inputs in itertools.product(LAYOUTS, SPANS):
        if layout.nested:
            found |= nested(layout, inputs)
    found |= neighbours()
    np.savez(file, **found)


def activations(rows: int) -> np.ndarray:
    """Rows of which the first and last are the same whatever their number, some with outliers."""
    random = np.random.default_rng(rows)
    values = random.standard_normal((rows, INPUTS), np.float32)
    values[rows // 2] = np.sign(values[rows // 2])
    values[0] = values[-1] = np.random.default_rng(0).standard_normal(INPUTS, np.float32)
    return values


def weights() -> np.ndarray:
    """One matrix [outputs, inputs] for all kinds."""
    return np.random.default_rng(1).standard_normal((OUTPUTS, INPUTS), np.float32)


def products(kind: NumericKind, rows: int) -> np.ndarray:
    """Outputs of one layer."""
    out = np.full((rows, OUTPUTS), np.nan, np.float32)
    x = Activations(*reference.activations(activations(rows), kind))
    linear(x, rows, reference.packed_layer(weights(), kind), out, Span(0, OUTPUTS // BLOCK))
    return out


def extremes(kind: NumericKind, matrix: Packed | GroupedWeights) -> np.ndarray:
    """Outputs of rows whose activations are the least and the largest that a pass writes."""
    least = 0 if kind.activation is np.uint8 else 1
    values = np.random.default_rng(2).choice([least, 255], (4, INPUTS))
    values[0], values[1] = least, 255
    scales = np.ones(4, np.float32)
    if kind.activation is not np.uint8:
        values = values - 128
    x = Activations(values.astype(kind.activation), scales)
    out = np.full((4, OUTPUTS), np.nan, np.float32)
    linear(x, 4, matrix, out, Span(0, OUTPUTS // BLOCK))
    return out


def nested(layout: Layout, span: int) -> dict[str, np.ndarray]:
    """Outputs of a layer whose scales are nested, by rows, some rows as large as they can be."""
    kind, inputs = kind_of(NumericPath.INT4), 512
    random, groups = np.random.default_rng(3), inputs // layout.group
    top, scale = (16 if layout.bits == 4 else 64), (128 if layout.zero else 64)
    quants = random.integers(0, top, (OUTPUTS, inputs)).astype(np.uint8)
    inner = random.integers(-scale if layout.zero else 0, scale, (2, OUTPUTS, groups))
    quants[0], inner[:, 0] = top - 1, scale - 1
    quants[1], inner[:, 1] = 0, inner.min()
    halves = random.standard_normal((2, OUTPUTS, inputs // span)).astype(np.float16)
    least = (halves[1], inner[1].astype(np.int8)) if layout.least else (None, None)
    matrix = Grouped(layout, quants, halves[0], least[0], inner[0].astype(np.int8), least[1])
    other = encode_bytes(np.ones((BLOCK, inputs), np.float32))
    w = layer_of(stack_grouped([[matrix, other, matrix]], 1), 0)
    found = {}
    for rows in ROWS:
        values = np.random.default_rng(rows).integers(-128, 128, (rows, inputs))
        values[0], values[-1] = 127, -128
        out = np.full((rows, 2 * OUTPUTS + BLOCK), np.nan, np.float32)
        x = Activations(values.astype(kind.activation), np.ones(rows, np.float32))
        linear(x, rows, w, out, Span(0, 2 * OUTPUTS // BLOCK + 1))
        found[f"{layout.name} of {span}, {rows}"] = out
    return found


def neighbours() -> dict[str, np.ndarray]:
    """What quantises activations between layers."""
    values, work = activations(9), np.empty((9, INPUTS), np.float32)
    gates, half = values * 4, np.empty((9, INPUTS // 2), np.float32)
    normed = Activations(np.empty((9, INPUTS), np.uint8), np.empty(9, np.float32))
    after = Activations(np.empty((9, INPUTS // 2), np.uint8), np.empty(9, np.float32))
    over = NormSize(INPUTS, np.float32(1e-5))
    norms(values, Span(0, 9), np.ones(INPUTS, np.float32), over, work, normed)
    gated(gates, Span(0, 9), SILU, half, after)
    return {
        "norm": normed.values,
        "norm scales": normed.scales,
        "gated": after.values,
        "gated scales": after.scales,
    }


if __name__ == "__main__":
    main(sys.argv[1])
