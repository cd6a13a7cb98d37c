"""Atomic words of int64 arrays, sequentially consistent, in memory that threads or processes share.

For code that numba compiles; `outrider.kernels.cpu.shared_words` has what Python calls.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from outrider.kernels.jit.simd import LONG, data


@intrinsic
def increment(typing: Any, array: Any, index: Any) -> Any:
    """Add 1; returns the value before."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        return builder.atomic_rmw("add", where, LONG(1), "seq_cst")

    return types.int64(array, types.intp), lower


@intrinsic
def exchange(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Replace a word; returns the value before."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        return builder.atomic_rmw("xchg", where, a[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), lower


@intrinsic
def read(typing: Any, array: Any, index: Any) -> Any:
    """Return a word."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        return builder.load_atomic(where, "seq_cst", 8)

    return types.int64(array, types.intp), lower


@intrinsic
def write(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set a word."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        builder.store_atomic(a[2], where, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), lower
