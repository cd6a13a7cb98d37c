"""The runner on a GPU: the kernels of `outrider.kernels.gpu` over static buffers and paged KV.

What differs between a CUDA device and CPU tensors under Triton's interpreter is in `copies` and
`graphs`; everything else is the same code on both. Whoever runs without a GPU imports none of it:
it loads torch and triton.
"""
