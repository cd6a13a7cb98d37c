"""Draws follow the filtered softmax: chi-square over the real path, which a 2 % bias fails."""

import numpy as np
import pytest
from scipy import stats

from outrider.kernels.sampling import gumbel_max, reference

VOCAB, BATCH, BATCHES = 4096, 2000, 120
Filters = tuple[float, int, float, float]  # temperature, top_k, top_p, min_p

FILTERS: list[Filters] = [
    (1.0, 0, 1.0, 0.0),
    (0.8, 0, 0.9, 0.0),
    (1.2, 60, 1.0, 0.0),
    (1.5, 50, 0.95, 0.01),
]


def row_of_logits() -> np.ndarray:
    return (np.random.default_rng(11).standard_normal(VOCAB) * 3).astype(np.float32)


def exact_probabilities(row: np.ndarray, filters: Filters) -> np.ndarray:
    scaled = reference.filter_row(row, *filters).astype(np.float64)
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum())


def counts_of_draws(row: np.ndarray, filters: Filters) -> np.ndarray:
    """How often each token is drawn: half of the draws vary the position, half the seed."""
    logits = np.repeat(row[None], BATCH, axis=0)
    tokens = np.full((BATCHES, BATCH), -7, np.int32)
    for i in range(BATCHES):
        seed, start = (1, i * BATCH) if i % 2 else (10**15 + i, 0)
        positions = np.arange(start, start + BATCH)
        gumbel_max.draw(logits, positions, np.uint64(seed), 0, *filters, tokens[i])
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
def test_draws_follow_the_filtered_softmax_and_a_bias_of_2_percent_is_rejected(
    filters: Filters,
) -> None:
    row = row_of_logits()
    probabilities = exact_probabilities(row, filters)
    counts = counts_of_draws(row, filters)
    assert counts.sum() >= 200_000
    assert counts[probabilities == 0].sum() == 0
    assert p_value(counts, probabilities) > 1e-3

    half = np.random.default_rng(12).random(VOCAB) < 0.5
    with np.errstate(divide="ignore"):
        biased = np.log(probabilities * np.where(half, 1.02, 0.98)).astype(np.float32)
    control = counts_of_draws(biased, (1.0, 0, 1.0, 0.0))
    assert control[probabilities == 0].sum() == 0
    assert p_value(control, probabilities) < 1e-3
