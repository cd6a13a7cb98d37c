"""How likely the model found the tokens that it committed, for requests that ask for it.

Looks at the rows of the committed path alone, after the walk. Leaves the arithmetic to
`outrider.kernels.sampling.log_softmax` and tokens' bytes to whoever answers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.log_softmax import log_probabilities
from outrider.worker.messages import TokenLogprob
from outrider.worker.tree.walk import Ints

ROOT_ROW = np.zeros(1, np.int32)


def likelihoods(
    logits: NDArray[np.float32], accepted: Ints, tokens: Ints, count: int
) -> list[TokenLogprob]:
    """One for each committed token, with the `count` likeliest at its place.

    `logits` [outputs, vocabulary] of one sequence, its root's row first, as the model gave them;
    `accepted` int32[n] node rows, of which `tokens` int32[n + 1] were drawn or are the last draw.
    """
    rows: Sequence[int] = np.concatenate([ROOT_ROW, accepted + np.int32(1)]).tolist()
    return [
        likelihood(logits[row], token, count)
        for row, token in zip(rows, tokens.tolist(), strict=True)
    ]


def likelihood(row: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    """Of one token at its place."""
    own, ids, logprobs = log_probabilities(row, token, count)
    found = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return TokenLogprob(own, tuple(pair for pair in found if pair[0] >= 0))
