"""AVX2's products of unsigned by signed bytes, added by pairs in int16, and their widening.

Leaves to the callers that an int16 holds what they add: the instruction saturates.
"""

from typing import Any

from llvmlite import ir

from outrider.kernels.cpu.simd import HALF, INT, invoke, vector

LANES = 8
"""int32 of a register."""


def multiply_pairs(builder: Any, unsigned: Any, signed: Any) -> Any:
    """Return 16 sums of two neighbours' products; 32 bytes each."""
    kind = vector(HALF, 2 * LANES)
    return invoke(builder, "llvm.x86.avx2.pmadd.ub.sw", kind, unsigned, signed)


def widen_pairs(builder: Any, pairs: Any) -> Any:
    """Return 8 int32, each the sum of two neighbouring int16."""
    ones = ir.Constant(vector(HALF, 2 * LANES), [1] * (2 * LANES))
    return invoke(builder, "llvm.x86.avx2.pmadd.wd", vector(INT, LANES), pairs, ones)
