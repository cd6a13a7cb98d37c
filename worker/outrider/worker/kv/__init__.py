"""KV cache memory: the block pool, block tables of sequences, and the arrays behind them.

Leaves the rows of a pass to `model`, copies between slots to `outrider.kernels`.
"""
