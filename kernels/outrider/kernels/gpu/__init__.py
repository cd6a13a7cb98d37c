"""Triton kernels for passes of few rows, each beside its PyTorch reference of the same signature.

A kernel's module holds, in this order: constants; the `@triton.jit` functions; the launch function,
which checks shapes and names what is wrong; `<launch>_reference`, the same parameters in plain
PyTorch; and COMPILATIONS, every configuration of it in Llama-3-8B and 70B at tensor-parallel
degrees 1 to 8 (`python -m bench.compiled` compiles them without a device). A launch's docstring
gives shapes, dtypes, source and memory traffic in bytes. Outputs are the caller's buffers, so that
a CUDA graph can hold them. A row's result depends on that row alone: tiles and splits follow from
the weights' shape, never from the number of rows.
"""

import os

# Triton 3.9 warns where this is unset, and 3.10 would change it: rows must not depend on either.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

from outrider.kernels.gpu.compilation import read_cache_keys

read_cache_keys()
