"""Instructions that add four products of bytes to each int32 of a register, by instruction set."""

from typing import Any

from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.jit.simd import invoke

DOTS = {
    NumericKind.INT8_AVX512: "llvm.x86.avx512.vpdpbusd.512",
    NumericKind.INT8_AVXVNNI: "llvm.x86.avx512.vpdpbusd.256",
    NumericKind.INT8_DOTPROD: "llvm.aarch64.neon.sdot.v4i32.v16i8",
    NumericKind.INT8_I8MM: "llvm.aarch64.neon.usdot.v4i32.v16i8",
    NumericKind.INT4_AVX512: "llvm.x86.avx512.vpdpbusd.512",
    NumericKind.INT4_AVXVNNI: "llvm.x86.avx512.vpdpbusd.256",
    NumericKind.INT4_DOTPROD: "llvm.aarch64.neon.udot.v4i32.v16i8",
    NumericKind.INT4_I8MM: "llvm.aarch64.neon.udot.v4i32.v16i8",
}
"""LLVM's intrinsics: total, activations, weights. `sdot` takes signed activations."""


def dot(builder: Any, kind: NumericKind, total: Any, x: Any, w: Any) -> Any:
    """Return total + products of activations x and weights w, four bytes each in a lane."""
    return invoke(builder, DOTS[kind], total.type, total, x, w)
