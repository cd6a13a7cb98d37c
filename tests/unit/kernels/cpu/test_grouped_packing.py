"""Quants in groups: what survives rounding, what is cut out, and products of every layout."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.kernels.cpu import reference
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.grouped_packing import (
    BF16,
    F16,
    GROUP,
    LAYOUTS,
    Q4_1,
    Q4_NESTED,
    Q8_0,
    Q8_16,
    Q8_NESTED,
    Grouped,
    Layout,
    as_it_is,
    encode,
    encode_bytes,
    layer_of,
    stack_grouped,
)
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import BLOCK, to_bfloat

OWN = kind_of(NumericPath.INT4)
CASES = [(OWN, layout) for layout in LAYOUTS]
CASES += [
    (NumericKind.INT4, layout)
    for layout in (Q4_NESTED, Q8_16, F16, BF16)
    if OWN is not NumericKind.INT4
]
"""This machine's products of every layout, and those of any machine."""
MOST = {Q4_NESTED: 16, Q8_NESTED: 32, Q8_16: 64}
"""Quants that a file of the layout may have."""


def any_of(layout: Layout, outputs: int, inputs: int, span: int, seed: int = 0) -> Grouped:
    """A matrix of any quants, scales and least values that a file may hold."""
    random = np.random.default_rng(seed)
    groups = inputs // layout.group
    if layout.floats:
        kept = as_it_is(floats_of(layout, random.standard_normal((outputs, inputs), np.float32)))
        assert kept is not None
        return kept
    most = MOST.get(layout, 1 << layout.bits)
    shape = outputs, groups // span

    def halves() -> np.ndarray:
        return random.standard_normal(shape).astype(np.float16)

    def inner() -> np.ndarray:
        least, top = (-128, 128) if layout is Q8_16 else (0, 64)
        return random.integers(least, top, (outputs, groups)).astype(np.int8)

    return Grouped(
        layout,
        random.integers(0, most, (outputs, inputs)).astype(np.uint8),
        halves(),
        halves() if layout.least else None,
        inner() if layout.nested else None,
        inner() if layout.nested and layout.least else None,
    )


def floats_of(layout: Layout, matrix: np.ndarray) -> np.ndarray:
    """Round a matrix to the floats of a layout, which the other one does not have."""
    if layout is F16:
        return matrix.astype(np.float16).astype(np.float32)
    return reference.from_bfloat(to_bfloat(matrix * np.float32(1e9)))


def product(x: Activations, parts: list[Grouped], outputs: int) -> np.ndarray:
    out = np.full((len(x.values), outputs), np.nan, np.float32)
    w = layer_of(stack_grouped([parts], 1), 0)
    linear(x, len(x.values), w, out, Span(0, outputs // BLOCK))
    return out


@pytest.mark.parametrize(("kind", "layout"), CASES, ids=lambda case: case.name)
def test_products_are_those_of_the_weights_that_the_file_says(
    kind: NumericKind, layout: Layout
) -> None:
    span = 256 // layout.group if layout.nested else 1
    matrix = any_of(layout, 64, 512, span)
    weights = matrix.floats().astype(np.float64)
    for rows in (1, 2, 3, 5, 8, 9, 19):
        values = np.random.default_rng(rows).standard_normal((rows, 512), np.float32)
        x = Activations(*reference.activations(values, kind))
        exact = (x.values.astype(np.float64) * x.scales[:, None]) @ weights.T
        found = product(x, [matrix], 64)
        assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()
        assert np.array_equal(
            found[-1:], product(Activations(x.values[-1:], x.scales[-1:]), [matrix], 64)
        )


@pytest.mark.parametrize(
    "layout", [x for x in LAYOUTS if not x.floats], ids=lambda layout: layout.name
)
def test_the_largest_bytes_are_summed_exactly(layout: Layout) -> None:
    kind = kind_of(NumericPath.INT4)
    matrix = any_of(layout, 32, 64, 1)
    most = MOST.get(layout, 1 << layout.bits) - 1
    quants = np.random.default_rng(0).choice([0, most], matrix.shape).astype(np.uint8)
    quants[0], quants[1] = 0, most
    ones = np.ones_like(matrix.scales)
    bytes_ = None if matrix.inner_scales is None else np.ones_like(matrix.inner_scales)
    matrix = replace(matrix, quants=quants, scales=ones, inner_scales=bytes_)
    values = np.random.default_rng(1).choice([-127, 127], (4, 64))
    values[0], values[1] = -127, 127
    x = Activations(values.astype(kind.activation), np.ones(4, np.float32))
    exact = values @ matrix.floats().astype(np.float64).T
    assert np.allclose(product(x, [matrix], 32), exact, rtol=1e-6, atol=1e-2)


def test_layers_may_be_of_parts_that_differ() -> None:
    kind = kind_of(NumericPath.INT4)
    parts = [any_of(Q4_NESTED, 64, 256, 8), any_of(Q8_16, 32, 256, 16), any_of(Q8_0, 40, 256, 1)]
    stack = stack_grouped([parts, [parts[1], parts[0], parts[2]]], 2)
    x = Activations(
        *reference.activations(np.random.default_rng(0).standard_normal((3, 256), np.float32), kind)
    )
    for layer, own in enumerate(([0, 1, 2], [1, 0, 2])):
        out = np.full((3, 160), np.nan, np.float32)
        linear(x, 3, layer_of(stack, layer), out, Span(0, 2))
        linear(x, 3, layer_of(stack, layer), out, Span(2, 5))
        whole = np.concatenate([parts[i].floats() for i in own])
        exact = (x.values.astype(np.float64) * x.scales[:, None]) @ whole.T.astype(np.float64)
        assert np.abs(out[:, :136] - exact).max() <= 1e-5 * np.abs(exact).max()
        assert not out[:, 136:].any()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_outputs_and_whole_groups_of_inputs_can_be_picked(layout: Layout) -> None:
    matrix = any_of(layout, 8, 256, 256 // layout.group if layout.nested else 1)
    floats = matrix.floats()
    rows = np.array([3, -1, 0])
    picked = np.where((rows < 0)[:, None], 0, floats[rows])
    assert np.array_equal(matrix.outputs(rows).floats(), picked)
    index = np.concatenate([np.arange(96, 160), np.full(32, -1), np.arange(32)])
    picked = np.where(index < 0, 0, floats[:, index])
    assert np.array_equal(matrix.inputs(index).floats(), picked)
    with pytest.raises(ValueError, match="whole groups"):
        matrix.inputs(np.arange(8, 72))


def on_grid(outputs: int, groups: int, size: float) -> np.ndarray:
    """A matrix as a Q4_1 file has it: half-precision scales and least values, 16 steps."""
    random = np.random.default_rng(0)
    quants = random.integers(0, 16, (outputs, groups, GROUP)).astype(np.float32)
    quants[..., :2] = 0, 15
    scales = random.uniform(0.5, 1, (outputs, groups, 1)) * size
    least = random.uniform(-12, -4, (outputs, groups, 1)) * size
    step, start = (x.astype(np.float16).astype(np.float32) for x in (scales, least))
    return (step * quants + start).reshape(outputs, -1)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1000.0])
def test_what_was_four_bits_in_its_file_comes_back(size: float) -> None:
    matrix = on_grid(6, 3, size)
    assert np.abs(encode(matrix).floats() - matrix).max() <= 1e-6 * np.abs(matrix).max()


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("encoded", "steps"), [(encode, 15), (encode_bytes, 254)])
def test_a_weight_moves_by_half_a_step_at_most(size: float, encoded: object, steps: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 64), np.float32) * np.float32(size)
    matrix[:, :32] /= 1000  # groups of one output may differ in size
    groups = matrix.reshape(5, 2, GROUP)
    step = 2 * np.abs(groups).max(axis=2) / steps
    moved = np.abs(encoded(matrix).floats() - matrix).reshape(groups.shape).max(axis=2)  # type: ignore[operator]
    assert (moved <= 0.54 * step).all()


def test_equal_weights_and_none_come_back() -> None:
    matrix = np.zeros((3, GROUP), np.float32)
    matrix[1] = 0.75
    assert np.array_equal(encode(matrix).floats(), matrix)
    assert encode(matrix).layout is Q4_1


@pytest.mark.parametrize("layout", [F16, BF16], ids=lambda layout: layout.name)
def test_floats_of_16_bits_stay_as_they_are(layout: Layout) -> None:
    matrix = floats_of(layout, np.random.default_rng(0).standard_normal((3, 64), np.float32))
    matrix[0, :3] = 0, -0.0, floats_of(layout, np.full((1, 1), 3e-7, np.float32))[0, 0]
    kept = as_it_is(matrix)
    assert kept is not None
    assert kept.layout is layout
    assert np.array_equal(kept.floats().view(np.uint32), matrix.view(np.uint32))


def test_other_floats_are_not_said_to_stay() -> None:
    matrix = np.full((2, 32), 1 / 3, np.float32)
    assert as_it_is(matrix) is None
    assert as_it_is(np.full((2, 32), 70000.1, np.float32)) is None


def test_layers_that_take_more_room_than_the_first_have_it() -> None:
    few, many = any_of(Q4_NESTED, 32, 256, 8), any_of(BF16, 32, 256, 1)
    stack = stack_grouped([[few], [many], [few], [many]], 4)
    x = Activations(*reference.activations(np.eye(3, 256, dtype=np.float32), OWN))
    for layer, own in enumerate((few, many, few, many)):
        out = np.full((3, 32), np.nan, np.float32)
        linear(x, 3, layer_of(stack, layer), out, Span(0, 1))
        exact = (x.values.astype(np.float64) * x.scales[:, None]) @ own.floats().T.astype(float)
        assert np.allclose(out, exact, rtol=1e-6)
