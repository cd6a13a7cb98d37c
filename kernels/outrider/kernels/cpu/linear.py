"""Linear layers for few rows: weights stream from memory once, in the order they are packed in.

A pass of 1-16 rows is bound by reading the weights, so they are packed for one sequential stream.
Each (row, output) is one sum over the inputs in one fixed order, or of integers, whose order does
not matter, so a row's result cannot depend on the rows beside it. Measured on a Zen 5 core against
oneDNN's prepacked int8 layers (121 layers of SmolLM2-135M, ms): 1 row 3.9 / 7.4, 8 rows 4.9 / 9.7,
16 rows 7.9 / 12.5. Leaves norms, activations and their quantisation to
`outrider.kernels.cpu.elementwise`.
"""

from typing import Any

from numba import njit, types
from numba.extending import overload

from outrider.kernels.cpu.grouped_packing import GroupedWeights
from outrider.kernels.cpu.linear_amx import AMX_ROWS, linear_bytes
from outrider.kernels.cpu.linear_avx2 import linear_avx2
from outrider.kernels.cpu.linear_dot import linear_dot
from outrider.kernels.cpu.linear_grouped import linear_grouped
from outrider.kernels.jit import isa
from outrider.kernels.jit.amx import INPUTS
from outrider.kernels.jit.isa import Isa


def _multiply(*arguments: Any) -> None:
    """Run the inner loop of the weights' format; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_multiply, inline="never")
def _multiply_by_format(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    layer = linear_avx2 if w.types[0].dtype == types.uint8 else linear_dot
    if w.instance_class is GroupedWeights:
        layer = linear_grouped
    elif isa.current() is Isa.AMX and x.types[0].dtype == types.uint8:

        def multiply_bytes(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
            if count < AMX_ROWS or x.values.shape[1] % INPUTS != 0:
                linear_dot(x, count, w, out, blocks)
            else:
                linear_bytes(x, count, w, out, blocks)

        return multiply_bytes

    def multiply(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
        layer(x, count, w, out, blocks)

    return multiply


@njit(cache=True, nogil=True)
def linear(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute a span of blocks of out[r] = (x[r] @ w.T) * w.scales * x.scales[r], for `count` rows.

    x: `Activations` [rows, padded inputs]; w: `Packed` or `GroupedWeights`; out [rows, padded
    outputs] float32.
    """
    _multiply(x, count, w, out, blocks)
