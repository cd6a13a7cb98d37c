"""The runner on a GPU: the kernels of `outrider.kernels.gpu` over static buffers and a paged KV
cache.

What differs between a CUDA device and CPU tensors under Triton's interpreter is in `transfers` and
`cuda_graphs`; everything else is the same code on both. It loads torch and triton, so a worker
without a GPU imports none of it.
"""
