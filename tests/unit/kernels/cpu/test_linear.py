"""Streaming linear layers against plain numpy, and the independence of their rows."""

import numpy as np
import pytest

from outrider.kernels.cpu import reference
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.grouped_packing import GroupedWeights
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import BLOCK, Packed, padded
from outrider.kernels.jit.isa import Isa

HOST = [kind_of(path) for path in NumericPath]
PORTABLE = (NumericKind.FP32, NumericKind.BF16, NumericKind.INT8, NumericKind.INT4)
KINDS = sorted({*HOST, *PORTABLE}, key=lambda kind: kind.name)
"""The portable kinds run anywhere; those of this machine's instructions only where it has them."""
ROWS = [1, 2, 3, 5, 7, 8, 9, 16, 19, 33, 34, 64]


def run(
    values: np.ndarray, packed: Packed | GroupedWeights, kind: NumericKind, outputs: int
) -> np.ndarray:
    """The compiled layer on whole rows, with buffers that start as NaN."""
    x = np.zeros((len(values), padded(values.shape[1], BLOCK)), np.float32)
    x[:, : values.shape[1]] = values
    count, width = len(values), len(packed.scales)
    out = np.full((count, width), np.nan, np.float32)
    inputs = Activations(*reference.activations(x, kind))
    linear(inputs, count, packed, out, Span(0, width // BLOCK))
    assert not np.isnan(out).any()
    return out[:, :outputs]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (33, 100), (96, 576), (150, 64)])
def test_products_equal_numpy_on_odd_shapes(kind: NumericKind, outputs: int, inputs: int) -> None:
    weight = normal(outputs, inputs, seed=1)
    packed = reference.packed_layer(weight, kind)
    for rows in ROWS:
        values = normal(rows, inputs, seed=rows)
        found = run(values, packed, kind, outputs)
        expected = reference.products(values, weight, kind)
        assert np.abs(found - expected).max() <= 2e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_bit_equal_beside_any_others(kind: NumericKind) -> None:
    packed = reference.packed_layer(normal(96, 160, seed=1), kind)
    row = normal(1, 160, seed=2)
    alone = run(row, packed, kind, 96)
    for rows in ROWS:
        for place in {0, rows // 2, rows - 1}:
            values = normal(rows, 160, seed=rows)
            values[rows // 3] *= 1e6  # an outlier must not change its neighbours
            values[place] = row
            assert np.array_equal(run(values, packed, kind, 96)[place], alone[0])


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_may_be_shared_between_callers(kind: NumericKind) -> None:
    packed = reference.packed_layer(normal(96, 64, seed=1), kind)
    inputs = Activations(*reference.activations(normal(3, 64), kind))
    whole, parts = (np.full((3, 96), np.nan, np.float32) for _ in range(2))
    linear(inputs, 3, packed, whole, Span(0, 3))
    linear(inputs, 3, packed, parts, Span(0, 1))
    assert np.isnan(parts[:, BLOCK:]).all()
    linear(inputs, 3, packed, parts, Span(1, 3))
    assert np.array_equal(whole, parts)


def test_an_output_without_weights_is_zero() -> None:
    packed = reference.packed_layer(np.zeros((2, 32), np.float32), NumericKind.INT8)
    assert np.array_equal(run(normal(2, 32), packed, NumericKind.INT8, 2), np.zeros((2, 2)))


@pytest.mark.parametrize("kind", [k for k in HOST if k.path is NumericPath.INT8 and k.group > 1])
@pytest.mark.parametrize("signs", ["same", "turns", "mixed"])
def test_the_largest_bytes_are_summed_exactly(kind: NumericKind, signs: str) -> None:
    random = np.random.default_rng(0)
    rows, outputs, inputs = 9, 64, 1536
    weight = random.choice([-127, 127], (outputs, inputs)).astype(np.float32)
    values = random.choice([0, 1, 255], (rows, inputs)).astype(kind.activation)
    if signs == "same":
        weight[:], values[:] = 127, 255
        values[1] = 0
    if signs == "turns":
        weight[:, ::2], weight[:, 1::2] = 127, -127
        values[:, ::2], values[:, 1::2] = 255, 0
    out = np.full((rows, outputs), np.nan, np.float32)
    inputs_of = Activations(values, np.ones(rows, np.float32))
    linear(inputs_of, rows, reference.packed_layer(weight, kind), out, Span(0, outputs // BLOCK))
    exact = (values.astype(np.int64) - 128) @ weight.T.astype(np.int64)
    assert np.array_equal(out, exact.astype(np.float32))


def test_every_machine_has_an_inner_loop_for_every_path() -> None:
    for isa in Isa:
        assert [kind_of(path, isa, {}).path for path in NumericPath] == list(NumericPath)
    assert [kind_of(path, Isa.SSE, {}) for path in NumericPath] == list(PORTABLE)


def test_an_instruction_set_has_kinds_of_its_own() -> None:
    new = {"avx512bf16": True}
    assert kind_of(NumericPath.BF16, Isa.AVX512, new) is NumericKind.BF16_AVX512
    assert kind_of(NumericPath.BF16, Isa.AVX512, {}) is NumericKind.BF16
    assert kind_of(NumericPath.BF16, Isa.AMX, new) is NumericKind.BF16_AVX512
    assert kind_of(NumericPath.INT8, Isa.AMX, new) is NumericKind.INT8_AVX512
    assert kind_of(NumericPath.INT8, Isa.AVX2, new) is NumericKind.INT8_AVX2
    assert kind_of(NumericPath.INT4, Isa.AVXVNNI, new) is NumericKind.INT4_AVXVNNI
