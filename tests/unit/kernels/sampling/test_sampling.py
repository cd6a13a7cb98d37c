"""Sampling and scoring equal the reference, and do not see the batch."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from scipy.special import log_softmax

from outrider.kernels.sampling import gumbel_max, reference
from outrider.kernels.sampling.draft_scores import DraftScorer, ScoreTuple
from outrider.kernels.sampling.filters import filter_row
from outrider.kernels.sampling.gumbel_max import sampling_tuple

SEED = 2**63 + 12345


@dataclass(frozen=True)
class Chain:
    """Sampling settings of a test."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = SEED
    choice: int = 0


FILTERS = [
    Chain(),
    Chain(temperature=0.3),
    Chain(top_k=1),
    Chain(top_k=40),
    Chain(top_k=2999, temperature=2.0),
    Chain(top_p=0.9),
    Chain(top_p=0.3, temperature=3.0),
    Chain(top_p=0.999),
    Chain(top_p=1e-6),
    Chain(min_p=0.05),
    Chain(min_p=1.0),
    Chain(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02),
    Chain(temperature=30.0, top_k=700, top_p=0.7, min_p=0.9),
]
CHAINS = st.builds(
    Chain,
    temperature=st.sampled_from([0.0, 1e-300, 0.05, 0.7, 1.0, 4.0, 100.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 17, 500, 10**9]),
    top_p=st.sampled_from([1.0, 1.0, 0.01, 0.37, 0.9, 0.9999]),
    min_p=st.sampled_from([0.0, 0.0, 0.011, 0.53, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 2**32 - 1),
)


def some_logits(rows: int, vocab: int, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, vocab)) * spread).astype(np.float32)


def reference_sample(logits: np.ndarray, positions: np.ndarray, chain: Chain) -> np.ndarray:
    return reference.sample(logits, positions, sampling_tuple(chain))


def kept(logits: np.ndarray, chain: Chain) -> np.ndarray:
    """Columns that the kernel's filters keep, bool[rows, vocab]."""
    result = np.empty(logits.shape, np.bool_)
    for i, row in enumerate(logits):
        scaled = row.copy()
        weights = np.full(row.size, np.nan, np.float32)
        filter_row(scaled, float(row.max()), sampling_tuple(chain), weights)
        result[i] = scaled > -np.inf
    return result


@run_with(derandomize=True, deadline=None, max_examples=120)
@given(
    chain=CHAINS,
    rows=st.integers(0, 4),
    vocab=st.sampled_from([1, 2, 63, 64, 65, 1023, 1025, 5000]),
    spread=st.sampled_from([0.0, 0.1, 1.0, 3.0, 30.0]),
    nans=st.booleans(),
)
def test_samples_equal_the_reference(
    chain: Chain, rows: int, vocab: int, spread: float, nans: bool
) -> None:
    logits = some_logits(rows, vocab, chain.seed, spread)
    if nans:
        logits[:, ::3] = np.nan
        logits[:, 1::3] = -np.inf
    positions = np.random.default_rng(1).integers(0, 2**31, rows)
    tokens = gumbel_max.Sampler(vocab).sample(logits, positions, chain)
    assert tokens.tolist() == reference_sample(logits, positions, chain).tolist()


@pytest.mark.parametrize("depth", [5.0, 9.0, 12.0])
def test_many_unlikely_tokens_win_as_often_as_the_reference_says(depth: float) -> None:
    logits = np.full((40, 20_000), -depth, np.float32)
    logits[:, 7] = 0
    positions = np.arange(40)
    tokens = gumbel_max.Sampler(20_000).sample(logits, positions, Chain())
    assert tokens.tolist() == reference_sample(logits, positions, Chain()).tolist()
    assert (tokens > 1024).any()


@pytest.mark.parametrize("vocab", [5, 1000, 3000])
def test_equals_of_the_kth_stay_and_top_p_keeps_the_first_of_equals(vocab: int) -> None:
    row = np.zeros((1, vocab), np.float32)
    row[0, 3] = 1.0
    assert kept(row, Chain(top_k=2)).all()
    half = kept(row, Chain(top_p=0.5))[0]
    needed = int(np.ceil(0.5 * (np.e + vocab - 1) - np.e)) if vocab > 5 else 1
    first = [i for i in range(vocab) if i != 3][:needed]
    assert np.flatnonzero(half).tolist() == sorted([*first, 3])


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = np.full((2, 3000), -4.0, np.float32)
    logits[0, [2999, 1100, 2000]] = 7
    logits[1, [5, 4]] = [0.0, -0.0]
    assert gumbel_max.Sampler(3000).sample(logits, np.arange(2), Chain(temperature=0)).tolist() == [
        1100,
        4,
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_never_wins_and_a_row_without_a_finite_maximum_gives_none(temperature: float) -> None:
    logits = np.full((5, 70), np.nan, np.float32)
    logits[0, 66] = -50
    logits[1] = -np.inf
    logits[2, 3] = np.inf
    logits[4] = 0
    logits[4, 9] = 300
    tokens = gumbel_max.Sampler(70).sample(logits, np.arange(5), Chain(temperature=temperature))
    assert tokens.tolist() == [66, gumbel_max.NONE, gumbel_max.NONE, gumbel_max.NONE, 9]


def test_columns_past_the_vocabulary_are_never_sampled() -> None:
    logits = some_logits(4, 128)
    logits[:, 100:] = 99
    positions = np.arange(4)
    padded = gumbel_max.Sampler(100).sample(logits, positions, Chain())
    assert padded.tolist() == reference_sample(logits[:, :100], positions, Chain()).tolist()


@pytest.mark.parametrize("chain", FILTERS)
def test_the_token_after_a_row_is_that_of_the_next_position(chain: Chain) -> None:
    logits, sampler = some_logits(3, 3000, 5), gumbel_max.Sampler(3000)
    positions, outputs = np.array([4, 8, 15, 16, 23], np.int32), np.array([1, 4, 2], np.int32)
    tokens = np.full(3, -7, np.int32)
    for settings in (chain, Chain(temperature=0), chain):
        sampler.sample_after(logits, positions, outputs, settings, tokens)
        expected = sampler.sample(logits, np.array([9, 24, 16]), settings)
        assert tokens.tolist() == expected.tolist()


@pytest.mark.parametrize("chain", FILTERS)
def test_a_row_does_not_see_its_neighbours(chain: Chain) -> None:
    logits, positions = some_logits(9, 3000, 4), np.array([5, 5, 5, 6, 7, 8, 900, 0, 2**31])
    sampler, order = gumbel_max.Sampler(3000), np.random.default_rng(0).permutation(9)
    together = sampler.sample(logits, positions, chain)
    assert (sampler.sample(logits[order], positions[order], chain) == together[order]).all()
    alone = [sampler.sample(logits[i : i + 1], positions[i : i + 1], chain)[0] for i in range(9)]
    assert alone == together.tolist()


@run_with(derandomize=True, deadline=None, max_examples=120)
@given(
    chain=CHAINS,
    rows=st.integers(0, 4),
    columns=st.sampled_from([1, 7, 64, 65, 1500]),
    k=st.sampled_from([0, 1, 8, 70]),
    scale=st.sampled_from([0.2, 1.0, 3.0]),
    masks=st.booleans(),
)
def test_draft_scores_equal_the_reference(
    chain: Chain, rows: int, columns: int, k: int, scale: float, masks: bool
) -> None:
    random = np.random.default_rng(chain.seed)
    ids = random.choice(4000, columns, replace=False).astype(np.int32)
    logits, positions = some_logits(rows, columns, chain.seed), random.integers(0, 9, rows)
    masked = random.random(columns) < 0.5 if masks else None
    scorer = DraftScorer(ids, 4000, -0.2)
    tokens, logprobs = scorer.score(logits, positions, scorer.rules(chain, scale, masked), k)
    query = ScoreTuple(sampling_tuple(chain), scale, -0.2)
    expected_tokens, expected = reference.draft_scores(logits, positions, ids, query, k, masked)
    assert tokens.tolist() == expected_tokens.tolist()
    real = tokens != gumbel_max.NONE
    assert (logprobs[~real] == -np.inf).all()
    assert np.isfinite(logprobs[real]).all()
    assert (logprobs[real] <= 0).all()
    np.testing.assert_allclose(logprobs[real], expected[real], rtol=1e-5, atol=1e-5)


def test_greedy_scores_are_the_softmax_over_the_error_scale_times_the_share() -> None:
    logits = some_logits(3, 200, 6)
    scorer = DraftScorer(np.arange(200, dtype=np.int32), 200, -0.5)
    tokens, logprobs = scorer.score(
        logits, np.arange(3), scorer.rules(Chain(temperature=0), 2.0), 200
    )
    softmax = log_softmax(logits / 2, -1)
    np.testing.assert_allclose(logprobs, np.take_along_axis(softmax, tokens, 1) - 0.5, atol=2e-6)
    assert (np.diff(logprobs, axis=1) <= 0).all()


def test_draft_ties_go_to_the_lowest_target_id() -> None:
    ids = np.arange(199, -1, -1, dtype=np.int32)
    logits = np.zeros((1, 200), np.float32)
    scorer = DraftScorer(ids, 200)
    tokens, _ = scorer.score(logits, np.zeros(1), scorer.rules(Chain(temperature=0), 1.0), 5)
    assert tokens.tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("chain", [*FILTERS, Chain(temperature=0)])
def test_a_draft_with_the_targets_logits_proposes_the_token_the_target_samples(
    chain: Chain,
) -> None:
    logits, positions = some_logits(1200, 1500, 7), np.arange(1200)
    columns = np.random.default_rng(0).permutation(1500).astype(np.int32)
    sampled = gumbel_max.Sampler(1500).sample(logits, positions, chain)
    scorer = DraftScorer(columns, 1500)
    tokens, _ = scorer.score(logits[:, columns], positions, scorer.rules(chain, 0.7), 1)
    assert (tokens[:, 0] == sampled).mean() >= 0.999


def test_a_wrong_seed_breaks_the_coupling() -> None:
    logits, positions = some_logits(300, 1500, 7), np.arange(300)
    scorer = DraftScorer(np.arange(1500, dtype=np.int32), 1500)
    sampled = gumbel_max.Sampler(1500).sample(logits, positions, Chain())
    tokens, _ = scorer.score(logits, positions, scorer.rules(Chain(seed=1), 1.0), 1)
    assert (tokens[:, 0] == sampled).mean() < 0.5


def test_scales_shares_and_ids_out_of_their_limits_are_refused() -> None:
    scorer = DraftScorer(np.arange(4, dtype=np.int32), 4)
    for scale in (0.0, float("nan")):
        with pytest.raises(ValueError, match="must be"):
            scorer.rules(Chain(), scale)
    for share in (0.1, float("nan")):
        with pytest.raises(ValueError, match="must be"):
            DraftScorer(np.arange(4, dtype=np.int32), 4, share)
    for ids in ([0, 0], [-1, 2], [0, 4]):
        with pytest.raises(ValueError, match="token_ids"):
            DraftScorer(np.array(ids, np.int32), 4)
