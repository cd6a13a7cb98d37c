import numpy as np
import pytest

from outrider.simulator.language import (
    Contexts,
    Pair,
    draft_children,
    mean_hit_rate,
    target_tokens,
)

SLOTS = np.arange(40_000, dtype=np.int32)
HASHES = np.random.default_rng(1).integers(1 << 63, size=(2, len(SLOTS))).astype(np.uint64)
CONTEXTS = Contexts(*HASHES)


def ranks(pair: Pair) -> np.ndarray:
    """Rank of the target's token among the draft's children; 8: none of them."""
    wanted = target_tokens(CONTEXTS, SLOTS, pair)
    tokens, _ = draft_children(CONTEXTS, SLOTS, pair, 8)
    hits = tokens == wanted[:, None]
    return np.where(hits.any(axis=1), hits.argmax(axis=1), 8)


@pytest.mark.parametrize("hit_rate", [0.5, 0.8])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_the_likeliest_child_is_right_as_often_as_the_pair_says(
    hit_rate: float, spread: float
) -> None:
    pair = Pair.of(32_768, hit_rate, spread, second=0.4)
    tokens, logprobs = draft_children(CONTEXTS, SLOTS, pair, 8)
    likeliest = tokens[np.arange(len(SLOTS)), logprobs.argmax(axis=1)]
    share = np.mean(likeliest == target_tokens(CONTEXTS, SLOTS, pair))
    assert share == pytest.approx(hit_rate, abs=0.01)


def test_children_are_right_as_often_as_the_draft_says() -> None:
    pair = Pair.of(32_768, 0.7, spread=1.5, second=0.4)
    found, (_, logprobs) = ranks(pair), draft_children(CONTEXTS, SLOTS, pair, 8)
    for rank in range(3):
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
            share = np.exp(logprobs[:, rank])
            chosen = (share > low) & (share <= high)
            if chosen.sum() > 1000:
                expected = share[chosen].mean()
                assert np.mean(found[chosen] == rank) == pytest.approx(expected, abs=0.02)


def test_children_of_one_context_differ() -> None:
    pair = Pair.of(8192, 0.7, spread=1.5, second=0.4)
    tokens, _ = draft_children(CONTEXTS, SLOTS[:1000], pair, 8)
    assert all(len(set(row)) == 8 for row in tokens.tolist())


def test_a_hit_rate_below_what_the_second_child_has_alone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hit rate of 0\.1"):
        Pair.of(32_768, 0.1, spread=1.0, second=0.6)


def test_mean_hit_rate_without_spread_is_the_probability_itself() -> None:
    assert mean_hit_rate(0.0, 0.0, 0.1) == pytest.approx(0.5)
