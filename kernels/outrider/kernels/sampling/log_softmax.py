"""How likely tokens are under a model's own distribution: log-softmax of logits as they come.

Leaves drawing, and all that changes logits before it, to `sampling` and `adjustments`.
"""

import numpy as np
from numba import njit

from outrider.kernels.sampling.draft_scores import best, total
from outrider.kernels.sampling.filters import load
from outrider.kernels.sampling.gumbel_max import NONE


def log_probabilities(
    row: np.ndarray, token: int, count: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """ln p of `token`, and of the `count` likeliest: ids int32[count], float32[count], best first.

    row float32[vocab]; the sum is fp64. Equals are in the order of their ids; where fewer tokens
    have a probability the ids end in `NONE`, with -inf.
    """
    tokens = np.full(count, NONE, np.int32)
    logprobs = np.full(count, -np.inf, np.float32)
    ids = np.arange(row.shape[0], dtype=np.int32)
    own = _log_probabilities(np.ascontiguousarray(row, np.float32), token, ids, tokens, logprobs)
    return float(own), tokens, logprobs


@njit(cache=True, nogil=True, error_model="numpy")
def _log_probabilities(
    row: np.ndarray, token: int, ids: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray
) -> float:
    values = np.empty(row.shape[0], np.float32)
    top = load(row, np.zeros(0, np.bool_), values)
    if not np.isfinite(top):
        return -np.inf
    shift = np.float64(top) + np.log(total(values, top))
    best(values, ids, shift, tokens, logprobs)
    return float(min(np.float64(values[token]) - shift, 0.0))
