"""Sampling from parts of a row of logits: the token that the whole row gives."""

import numpy as np
import pytest

from outrider.kernels.sampling.gumbel_max import NONE, Sampler, sample_part, tops
from outrider.worker.parallel.vocab_parallel import best
from outrider.worker.sampling.params import SETTINGS, SamplingParams

VOCABULARY = 4100
ROWS = 64


def sampled_in_parts(
    logits: np.ndarray, positions: np.ndarray, sampling: SamplingParams, width: int
) -> np.ndarray:
    """Tokens that ranks with `width` ids each sample together."""
    count = len(logits)
    parts = [
        np.ascontiguousarray(logits[:, first : first + width])
        for first in range(0, 3 * VOCABULARY, width)  # the last ones have no ids
    ]
    peaks = np.empty((len(parts), count), np.float32)
    for part, peak in zip(parts, peaks, strict=True):
        tops(part, peak)
    settings = np.array(count * [sampling.settings], SETTINGS)
    found = np.empty((len(parts), count, 2), np.float64)
    for rank, part in enumerate(parts):
        tokens, scores = np.empty(count, np.int32), np.empty(count, np.float64)
        top = peaks.max(axis=0)
        sample_part(part, top, positions, settings, rank * width, tokens, scores)
        found[rank, :, 0], found[rank, :, 1] = scores, tokens
    return best(found)


@pytest.mark.parametrize("width", [32, 1376, 2080])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7, seed=2**64 - 1),
        SamplingParams(temperature=1.0, seed=5, choice=2**32 - 1),
        SamplingParams(temperature=30.0, seed=7),
    ],
)
def test_parts_sample_what_the_whole_row_samples(sampling: SamplingParams, width: int) -> None:
    random = np.random.default_rng(width)
    logits = (4 * random.standard_normal((ROWS, VOCABULARY))).astype(np.float32)
    positions = np.arange(ROWS, dtype=np.int64) * 7
    expected = Sampler(VOCABULARY).sample(logits, positions, sampling)
    assert np.array_equal(sampled_in_parts(logits, positions, sampling, width), expected)
    assert len(set(expected.tolist())) > ROWS // 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_numbers_and_with_equals_are_sampled_alike(temperature: float) -> None:
    logits = np.full((6, VOCABULARY), -np.inf, np.float32)
    logits[1] = np.nan
    logits[2, [40, 4000]] = 3.0  # equals in two parts: the lowest id, or the noise
    logits[3, 4099] = np.inf
    logits[4, 70] = -1e30
    logits[5, [5, 1000]] = np.nan, 2.0
    sampling = SamplingParams(temperature=temperature, seed=3)
    positions = np.arange(6, dtype=np.int64)
    expected = Sampler(VOCABULARY).sample(logits, positions, sampling)
    assert expected.tolist()[:2] == [NONE, NONE]
    assert np.array_equal(sampled_in_parts(logits, positions, sampling, 1376), expected)
