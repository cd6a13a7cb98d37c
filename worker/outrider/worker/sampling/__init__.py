"""Sampling params, logits processors and grammars of one request.

Leaves the arithmetic to `outrider.kernels.sampling`.
"""
