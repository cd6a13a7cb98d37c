"""Compute kernels, each beside its plain reference; on a CPU they are compiled by numba."""

from outrider.kernels.jit import compiled

__all__ = ["compiled"]
