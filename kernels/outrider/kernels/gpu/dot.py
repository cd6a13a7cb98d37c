"""Matrix products of tiles whose elements depend on their own row and column alone.

Leaves tiles to the kernels. A tensor core computes each element from its row and column in one
order. The interpreter's `tl.dot` is numpy's product, which sums by where a row stands in the tile
(OpenBLAS takes six rows at a time); there, every element is a sum of its own instead, so that tests
can ask for equal bits.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def product(a, b, sums):  # type: ignore[no-untyped-def]
    """Return sums [m, n] + a [m, k] @ b [k, n] in float32; float32 operands stay float32."""
    if INTERPRETED:
        terms = a.to(tl.float32)[:, :, None] * b.to(tl.float32)[None, :, :]
        sums = sums + tl.sum(terms, 1)
    else:
        sums = tl.dot(a, b, sums, input_precision="ieee")
    return sums
