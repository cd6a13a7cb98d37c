"""All that reaches into numba or writes LLVM's instructions: docs/concepts/numba-internals.md.

Other modules take `njit` and `types` of numba, and what is here. Leaves what to compute to
`outrider.kernels.cpu`, whose descriptions of data (`packing`, `grouped_packing`, `numeric_kind`) it
reads.
"""
