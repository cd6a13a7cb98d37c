"""A GPU's stages without a GPU: every kernel that they launch is specialised and compiled.

`python -m tools.gpu_rehearsal` runs what stages B to H of `bench.device` launch, and the start of a
target, with a driver that loads nothing and launches nothing. It shows which tests are collected,
which kernels do not compile or do not fit, and what spills; and it fills a folder of compiled
kernels (TRITON_CACHE_DIR) that a machine with such a device can take. Leaves every result to a
device: nothing is computed.
"""
