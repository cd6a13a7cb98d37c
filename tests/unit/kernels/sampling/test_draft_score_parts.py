"""Scoring children from parts of a row of logits: those that the whole row gives."""

import numpy as np
import pytest

from outrider.kernels.sampling.draft_scores import (
    NOT_MASKED,
    DraftScorer,
    PartRows,
    PartScorer,
    ScoredPart,
    merged,
)
from outrider.kernels.sampling.gumbel_max import NONE
from outrider.worker.parallel.vocab_parallel import packed, unpacked
from outrider.worker.sampling.params import SETTINGS, SamplingParams
from tests.pairwise import pairwise

COLUMNS, VOCABULARY, ROWS, CHILDREN = 4100, 4900, 12, 5
IDS = np.sort(np.random.default_rng(1).permutation(VOCABULARY)[:COLUMNS]).astype(np.int32)
LOG_SHARE = -0.1


def in_parts(
    logits: np.ndarray,
    sampling: SamplingParams,
    masked: np.ndarray | None,
    scale: float,
    width: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Children that ranks with `width` columns each find together; the last ones have none."""
    count = len(logits)
    cuts = [slice(first, first + width) for first in range(0, 2 * COLUMNS, width)]
    shares = [np.ascontiguousarray(logits[:, cut]) for cut in cuts]
    scorers = [PartScorer(IDS[cut]) for cut in cuts]
    masks = [np.empty((0, 0), np.bool_) if masked is None else masked[None, cut] for cut in cuts]
    mask = np.full(count, NOT_MASKED if masked is None else 0, np.int64)
    positions, settings = np.arange(count), np.array(count * [sampling.settings], SETTINGS)
    scales = np.full(count, scale, np.float64)
    rows = [PartRows(positions, settings, scales, own, mask) for own in masks]
    own = list(zip(scorers, shares, rows, strict=True))
    top = np.stack([scorer.tops(share, of_part) for scorer, share, of_part in own]).max(axis=0)

    def part(scorer: PartScorer, share: np.ndarray, of_part: PartRows) -> ScoredPart:
        return unpacked(packed(scorer.score(share, of_part, top, CHILDREN)))

    return merged([part(*one) for one in own], LOG_SHARE)


def whole(
    logits: np.ndarray, sampling: SamplingParams, masked: np.ndarray | None, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    scorer = DraftScorer(IDS, VOCABULARY, LOG_SHARE)
    rules = scorer.rules(sampling, scale, masked)
    return scorer.score(logits, np.arange(len(logits)), rules, CHILDREN)


SAMPLINGS = [
    (SamplingParams(), 1.5),
    (SamplingParams(temperature=0.7, seed=2**64 - 1), 1.0),
    (SamplingParams(temperature=30.0, seed=5, choice=2**32 - 1), 0.3),
]
"""With the scale of the draft's error."""


@pytest.mark.parametrize(
    ("scaled", "width", "masks"),
    pairwise(scaled=SAMPLINGS, width=[32, 1376, 2080], masks=[False, True]),
)
def test_parts_have_the_children_of_the_whole_row(
    scaled: tuple[SamplingParams, float], width: int, masks: bool
) -> None:
    sampling, scale = scaled
    random = np.random.default_rng(width)
    logits = (4 * random.standard_normal((ROWS, COLUMNS))).astype(np.float32)
    masked = random.random(COLUMNS) < 0.3 if masks else None
    tokens, logprobs = in_parts(logits, sampling, masked, scale, width)
    expected, wanted = whole(logits, sampling, masked, scale)
    assert np.array_equal(tokens, expected)
    assert np.allclose(logprobs, wanted, atol=2e-6)
    assert len(set(tokens[:, 0].tolist())) > ROWS // 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_numbers_and_with_equals_have_their_children(temperature: float) -> None:
    logits = np.full((6, COLUMNS), -np.inf, np.float32)
    logits[1] = np.nan
    logits[2, [40, 4000, 41]] = 3.0  # equals in two parts: the lowest id, or the noise
    logits[3, 4099] = np.inf
    logits[4, 70] = -1e30
    logits[5, [5, 1000]] = np.nan, 2.0
    sampling = SamplingParams(temperature=temperature, seed=3)
    tokens, logprobs = in_parts(logits, sampling, None, 1.0, 1376)
    expected, wanted = whole(logits, sampling, None, 1.0)
    assert expected[:2].tolist() == [[NONE] * CHILDREN] * 2
    assert np.array_equal(tokens, expected)
    assert np.allclose(logprobs, wanted, atol=2e-6)
