"""The forward pass on a CPU: shapes of models, their parts, packed weights, rows of a pass.

Leaves files to `checkpoints`, KV memory to `kv`, and arithmetic to `outrider.kernels.cpu`.
"""
