"""Sampling on the CPU: shared Gumbel noise, filters, penalties, sampling and draft scores.

The plain form of every rule is in `reference`. Leaves GPUs to `outrider.kernels.gpu`.
"""
