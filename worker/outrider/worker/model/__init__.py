"""Models: fetching, preparing, loading and packing weights, the CPU forward pass, step costs.

Leaves KV memory to `kv`, sampling to `sampling`, arithmetic to `outrider.kernels.cpu`.
"""
