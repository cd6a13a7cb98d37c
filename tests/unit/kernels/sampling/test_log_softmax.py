"""Log-probabilities are those of a softmax in fp64, best first."""

import numpy as np
import pytest

from outrider.kernels.sampling.gumbel_max import NONE
from outrider.kernels.sampling.log_softmax import log_probabilities


@pytest.mark.parametrize(("count", "spread"), [(0, 3.0), (1, 20.0), (5, 0.1), (20, 3.0)])
def test_log_probabilities_are_those_of_the_softmax(count: int, spread: float) -> None:
    row = (np.random.default_rng(count).normal(0, spread, 3001)).astype(np.float32)
    wide = row.astype(np.float64)
    exact = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    own, ids, logprobs = log_probabilities(row, 1234, count)
    best = np.argsort(-row, kind="stable")[:count]
    assert own == pytest.approx(exact[1234], rel=1e-6, abs=1e-6)
    assert ids.tolist() == best.tolist()
    np.testing.assert_allclose(logprobs, exact[best], rtol=1e-6, atol=1e-6)


def test_tokens_without_a_probability_are_not_listed() -> None:
    row = np.array([np.nan, 1.0, -np.inf, 1.0], np.float32)
    own, ids, logprobs = log_probabilities(row, 2, 3)
    assert own == -np.inf
    assert ids.tolist() == [1, 3, NONE]
    np.testing.assert_allclose(logprobs, [-np.log(2), -np.log(2), -np.inf])
