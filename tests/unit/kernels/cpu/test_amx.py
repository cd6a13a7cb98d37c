"""AMX's tiles on a model of its registers, so that any machine checks what only some have."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit

from outrider.kernels.cpu import linear_amx, linear_grouped, reference
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.grouped_packing import LAYOUTS, Layout, layer_of, stack_grouped
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import BLOCK, pack
from outrider.kernels.jit import amx
from outrider.kernels.jit.simd import LONG
from tests.unit.kernels.cpu.test_grouped_packing import any_of

KIND = NumericKind.INT8_AVX512
OUTPUTS, INPUTS = 96, 192
NESTED = [layout for layout in LAYOUTS if layout.nested]


class Registers:
    """Intel's registers TMM0-7, and the instructions that `amx` uses."""

    def __init__(self) -> None:
        self.held: list[np.ndarray] = []
        """[rows][bytes] of each; nothing where they are not taken."""

    def ldtilecfg(self, table: int) -> None:
        """Rows and bytes of a row of each register: palette 1."""
        given = np.frombuffer(ctypes.string_at(table, 64), np.uint8)
        assert given[0] == 1
        widths, heights = given[16:32].view(np.uint16), given[48:56]
        assert not given[1:16].any()
        assert not given[32:48].any()
        assert not given[56:].any()
        assert heights.max() <= 16
        assert widths.max() <= 64
        shapes = zip(heights.tolist(), widths.tolist(), strict=True)
        self.held = [np.zeros(shape, np.uint8) for shape in shapes]

    def tilerelease(self) -> None:
        """Nothing may be used until the next `ldtilecfg`."""
        self.held = []

    def tileloadd64(self, number: int, first: int, pitch: int) -> None:
        """Read rows `pitch` bytes apart."""
        for at, row in enumerate(self.held[number]):
            row[:] = np.frombuffer(ctypes.string_at(first + at * pitch, len(row)), np.uint8)

    def tilestored64(self, number: int, first: int, pitch: int) -> None:
        """Write rows `pitch` bytes apart."""
        for at, row in enumerate(self.held[number]):
            ctypes.memmove(first + at * pitch, row.tobytes(), len(row))

    def tilezero(self, number: int) -> None:
        """Set all to zero."""
        self.held[number][:] = 0

    def tdpbusd(self, sums: int, unsigned: int, signed: int) -> None:
        """sums [m][n] += unsigned [m][k][4] * signed [k][n][4]."""
        self._add(sums, self.held[unsigned], signed)

    def tdpbssd(self, sums: int, one: int, other: int) -> None:
        """sums [m][n] += signed [m][k][4] * signed [k][n][4]."""
        self._add(sums, self.held[one].view(np.int8), other)

    def _add(self, sums: int, bytes_: np.ndarray, signed: int) -> None:
        x = bytes_.astype(np.int32)
        w = self.held[signed].view(np.int8).astype(np.int32)
        w = w.reshape(len(w), -1, 4).transpose(0, 2, 1).reshape(x.shape[1], -1)
        self.held[sums].view(np.int32)[:] += x @ w


@pytest.fixture
def on_model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that makes another run on the model instead of the processor.

    Only while it is called: what is compiled meanwhile and kept on disk must not be for the model.
    """
    model, made = Registers(), []

    def call(builder: Any, name: str, *arguments: Any) -> None:
        kinds = [ctypes.c_void_p if a.type.is_pointer else ctypes.c_int64 for a in arguments]
        made.append(ctypes.CFUNCTYPE(None, *kinds)(getattr(model, name)))
        given = [a if a.type.is_pointer else builder.zext(a, LONG) for a in arguments]
        kind = ir.FunctionType(ir.VoidType(), [a.type for a in given])
        address = ctypes.cast(made[-1], ctypes.c_void_p).value
        builder.call(builder.inttoptr(LONG(address), kind.as_pointer()), given)

    def run(function: Any) -> Callable[..., Any]:
        compiled = njit(function.py_func)

        def on_registers(*arguments: Any) -> Any:
            with monkeypatch.context() as patched:
                patched.setattr(amx, "_call", call)
                return compiled(*arguments)

        return on_registers

    return run


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 19, 33, 48, 64])
def test_products_are_exact_whatever_registers_the_rows_take(
    on_model: Callable[..., Any], rows: int
) -> None:
    random = np.random.default_rng(rows)
    weight = random.standard_normal((OUTPUTS, INPUTS), np.float32)
    packed = pack(weight, KIND)
    values, of_row = reference.activations(random.standard_normal((rows, INPUTS), np.float32), KIND)
    out = np.full((rows, OUTPUTS), np.nan, np.float32)
    multiply = on_model(linear_amx.linear_bytes)
    multiply(Activations(values, of_row), rows, packed, out, Span(0, OUTPUTS // BLOCK))
    coded = np.rint(weight / packed.scales[:, None]).astype(np.int64)
    exact = ((values.astype(np.int64) - 128) @ coded.T).astype(np.float32)
    assert np.array_equal(out, exact * packed.scales * of_row[:, None])


def test_a_caller_s_blocks_alone_are_written(on_model: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    packed = pack(random.standard_normal((OUTPUTS, INPUTS), np.float32), KIND)
    x = Activations(*reference.activations(random.standard_normal((3, INPUTS), np.float32), KIND))
    out = np.full((3, OUTPUTS), np.nan, np.float32)
    on_model(linear_amx.linear_bytes)(x, 3, packed, out, Span(1, 2))
    written = ~np.isnan(out)
    assert written[:, BLOCK : 2 * BLOCK].all()
    assert written.sum() == 3 * BLOCK


@pytest.mark.parametrize("layout", NESTED, ids=lambda layout: layout.name)
def test_quants_have_the_bits_of_products_without_registers(
    on_model: Callable[..., Any], layout: Layout
) -> None:
    parts = [any_of(layout, outputs, 512, 256 // layout.group) for outputs in (32, 96)]
    w = layer_of(stack_grouped([parts], 1), 0)
    weights = np.concatenate([part.floats() for part in parts]).astype(np.float64)
    multiply = on_model(linear_grouped._multiply_by_registers)
    for rows in (1, 5, 16, 19, 33, 64):
        values = np.random.default_rng(rows).standard_normal((rows, 512), np.float32)
        x = Activations(*reference.activations(values, NumericKind.INT4_AVX512))
        found = np.full((rows, 128), np.nan, np.float32)
        multiply(x, rows, w, w.marks[0], w.segments[1], found, 2, 4)
        exact = (x.values.astype(np.float64) * x.scales[:, None]) @ weights[64:].T
        assert np.isnan(found[:, :64]).all()
        assert np.abs(found[:, 64:] - exact).max() <= 1e-6 * np.abs(exact).max()
        if kind_of(NumericPath.INT4).activation is np.int8:
            alone = np.full((rows, 128), np.nan, np.float32)
            for row in range(rows):
                one = Activations(x.values[row : row + 1], x.scales[row : row + 1])
                linear(one, 1, w, alone[row : row + 1], Span(2, 4))
            assert np.array_equal(found, alone, equal_nan=True)
