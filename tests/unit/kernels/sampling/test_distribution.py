"""Samples follow the filtered softmax: chi-square over the real path, which a 10 % bias fails."""

import numpy as np
import pytest
from scipy import stats

from outrider.kernels.sampling import gumbel_max, reference
from outrider.kernels.sampling.filters import SamplingTuple

VOCAB, BATCH, BATCHES = 4096, 2000, 10
BIAS = 0.1
"""It adds draws x BIAS^2 = 200 to a chi-square, whose deviation is 9 (41 bins) to 32 (499)."""
NO_SEED = np.uint64(0)
UNFILTERED = SamplingTuple(1.0, 0, 1.0, 0.0, NO_SEED, 0)
FILTERS = [
    UNFILTERED,
    SamplingTuple(0.8, 0, 0.9, 0.0, NO_SEED, 0),
    SamplingTuple(1.2, 60, 1.0, 0.0, NO_SEED, 0),
    SamplingTuple(1.5, 50, 0.95, 0.01, NO_SEED, 0),
]


def row_of_logits() -> np.ndarray:
    return (np.random.default_rng(11).standard_normal(VOCAB) * 3).astype(np.float32)


def exact_probabilities(row: np.ndarray, filters: SamplingTuple) -> np.ndarray:
    scaled = reference.filter_row(row, filters).astype(np.float64)
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum())


def counts_of_samples(row: np.ndarray, filters: SamplingTuple) -> np.ndarray:
    """Times that each token is sampled: half of the samples vary the position, half the seed."""
    logits = np.repeat(row[None], BATCH, axis=0)
    tokens = np.full((BATCHES, BATCH), -7, np.int32)
    for i in range(BATCHES):
        seed, start = (1, i * BATCH) if i % 2 else (10**15 + i, 0)
        positions = np.arange(start, start + BATCH)
        sampling = filters._replace(seed=np.uint64(seed))
        gumbel_max.sample(logits, positions, sampling, tokens[i])
    return np.bincount(tokens.ravel(), minlength=VOCAB)


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Chi-square of counts; tokens expected fewer than 5 times share bins with their likes."""
    order = np.argsort(-probabilities)
    expected = probabilities[order] * counts.sum()
    bins = np.floor(np.cumsum(expected) / 5).astype(int)
    bins = np.unique(np.where(expected >= 5, np.arange(VOCAB) - VOCAB, bins), return_inverse=True)[
        1
    ]
    observed, wanted = np.bincount(bins, counts[order]), np.bincount(bins, expected)
    small = wanted < 4
    if small.any():  # the last bin, cut short
        keep = int(np.flatnonzero(~small)[-1])
        observed[keep] += observed[small].sum()
        wanted[keep] += wanted[small].sum()
        observed, wanted = observed[~small], wanted[~small]
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    return float(stats.chi2.sf(statistic, wanted.size - 1))


@pytest.mark.parametrize("filters", FILTERS)
def test_tokens_follow_the_filtered_softmax_and_a_bias_of_10_percent_is_rejected(
    filters: SamplingTuple,
) -> None:
    row = row_of_logits()
    probabilities = exact_probabilities(row, filters)
    counts = counts_of_samples(row, filters)
    assert counts[probabilities == 0].sum() == 0
    assert p_value(counts, probabilities) > 1e-3

    half = np.random.default_rng(12).random(VOCAB) < 0.5
    with np.errstate(divide="ignore"):
        biased = np.log(probabilities * np.where(half, 1 + BIAS, 1 - BIAS)).astype(np.float32)
    control = counts_of_samples(biased, UNFILTERED)
    assert control[probabilities == 0].sum() == 0
    assert p_value(control, probabilities) < 1e-3
