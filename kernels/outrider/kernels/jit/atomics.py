"""Atomic words of int64 arrays, sequentially consistent, in memory that threads or processes share.

For code that numba compiles; `outrider.kernels.cpu.shared_words` has what Python calls.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

from outrider.kernels.jit.simd import LONG, data


def _on_word(emit: Callable[..., Any], result: Any, valued: bool = False) -> Any:
    """Make an intrinsic: what `emit` does to word `index` of an array, with a value if `valued`."""

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        where = builder.gep(data(context, builder, sig.args[0], a[0]), [a[1]])
        done = emit(builder, where, *a[2:])
        return context.get_dummy_value() if result is types.void else done

    if valued:
        return intrinsic(
            lambda typing, array, index, value: (result(array, types.intp, types.int64), lower)
        )
    return intrinsic(lambda typing, array, index: (result(array, types.intp), lower))


increment = _on_word(lambda b, at: b.atomic_rmw("add", at, LONG(1), "seq_cst"), types.int64)
"""Adds 1; returns the value before."""
exchange = _on_word(
    lambda b, at, value: b.atomic_rmw("xchg", at, value, "seq_cst"), types.int64, valued=True
)
"""Replaces a word; returns the value before."""
read = _on_word(lambda b, at: b.load_atomic(at, "seq_cst", 8), types.int64)
"""Returns a word."""
write = _on_word(
    lambda b, at, value: b.store_atomic(value, at, "seq_cst", 8), types.void, valued=True
)
"""Sets a word."""
