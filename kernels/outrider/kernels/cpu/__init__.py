"""CPU kernels, compiled by numba: linear layers, attention, the layers of a forward pass.

Leaves sampling to `outrider.kernels.sampling`, memory and models to the worker.
"""
