"""AMX's tiles on a model of its registers, so that any machine checks what only some have."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit

from outrider.kernels.cpu import linear_amx, reference
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.cpu.packing import BLOCK, pack
from outrider.kernels.jit import amx
from outrider.kernels.jit.simd import LONG

KIND = NumericKind.INT8_AVX512
OUTPUTS, INPUTS = 96, 192


class Registers:
    """Intel's registers TMM0-7, and the instructions that `amx` uses."""

    def __init__(self) -> None:
        self.held: list[np.ndarray] = []

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

    def tdpbusd(self, sums: int, unsigned: int, signed: int) -> None:
        """sums [m][n] += unsigned [m][k][4] * signed [k][n][4]."""
        x = self.held[unsigned].astype(np.int32)
        w = self.held[signed].view(np.int8).astype(np.int32)
        w = w.reshape(len(w), -1, 4).transpose(0, 2, 1).reshape(x.shape[1], -1)
        self.held[sums].view(np.int32)[:] += x @ w


@pytest.fixture
def on_model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that compiles another for the model instead of the processor."""
    model, made = Registers(), []

    def call(builder: Any, name: str, *arguments: Any) -> None:
        kinds = [ctypes.c_void_p if a.type.is_pointer else ctypes.c_int64 for a in arguments]
        made.append(ctypes.CFUNCTYPE(None, *kinds)(getattr(model, name)))
        given = [a if a.type.is_pointer else builder.zext(a, LONG) for a in arguments]
        kind = ir.FunctionType(ir.VoidType(), [a.type for a in given])
        address = ctypes.cast(made[-1], ctypes.c_void_p).value
        builder.call(builder.inttoptr(LONG(address), kind.as_pointer()), given)

    monkeypatch.setattr(amx, "_call", call)
    return lambda function: njit(function.py_func)


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 19, 33, 48, 64])
def test_products_are_exact_whatever_registers_the_rows_take(
    on_model: Callable[..., Any], rows: int
) -> None:
    random = np.random.default_rng(rows)
    weight = random.standard_normal((OUTPUTS, INPUTS), np.float32)
    packed = pack(weight, KIND)
    values, of_row = reference.activations(random.standard_normal((rows, INPUTS), np.float32), KIND)
    out = np.full((rows, OUTPUTS), np.nan, np.float32)
    linear = on_model(linear_amx.linear_bytes)
    linear(Activations(values, of_row), rows, packed, out, Span(0, OUTPUTS // BLOCK))
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
