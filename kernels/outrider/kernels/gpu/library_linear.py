"""Products x @ W.T by the vendor's library, for prompts: it reads weights once for 128 rows, where
`linear` reads them once for at most 64.

A row's bits depend on how many rows there are, and may depend on its number among them. Leaves
keeping both fixed to the caller.
"""

import torch
from torch import Tensor

from outrider.kernels.gpu.weights import WeightFormat, Weights, dense


def library_linear(x: Tensor, weights: Weights, out: Tensor | None = None) -> Tensor:
    """Return x @ W.T, in `out` if given: [rows, outputs] in x's dtype.

    x: [rows, inputs], in the dtype of PLAIN weights, which are read as they are. FP8 are widened
    exactly, and the rounded product is scaled; INT4 are widened and rounded. Both cost memory
    traffic: each weight is written and read again in x's dtype, INT4 in float32, too.
    """
    product = torch.mm(x, widened(weights, x.dtype).T, out=out)
    if weights.format is WeightFormat.FP8:
        assert weights.scales is not None
        torch.mul(product, weights.scales, out=product)
    return product


def widened(weights: Weights, dtype: torch.dtype) -> Tensor:
    """Return a matrix [outputs, inputs] as the library takes it; FP8 without its scales."""
    if weights.format is WeightFormat.PLAIN:
        return weights.values
    if weights.format is WeightFormat.FP8:
        return weights.values.view(torch.float8_e4m3fn).to(dtype)
    return dense(weights).to(dtype)
