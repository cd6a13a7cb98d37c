"""Percentiles of weighted figures are those of the figures repeated."""

import math

from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.load.percentiles import percentile, spread, weighted

FIGURES = st.floats(0, 1e6)
WEIGHTED = st.lists(st.tuples(FIGURES, st.integers(1, 20)), min_size=1, max_size=30)


def test_nothing_has_no_spread() -> None:
    assert spread([]) is None
    assert weighted([]) is None


@given(st.lists(FIGURES, min_size=1))
def test_a_percentile_is_one_of_the_figures_and_they_are_in_order(figures: list[float]) -> None:
    found = spread(figures)
    assert found is not None
    assert found.n == len(figures)
    assert {found.p50, found.p90, found.p99} <= set(figures)
    assert min(figures) <= found.p50 <= found.p90 <= found.p99 <= max(figures)
    assert min(figures) <= found.mean <= max(figures)


@given(WEIGHTED)
def test_a_weight_counts_as_so_many_figures(figures: list[tuple[float, int]]) -> None:
    found = weighted(figures)
    repeated = spread(value for value, count in figures for _ in range(count))
    assert found is not None
    assert repeated is not None
    assert (found.p50, found.p90, found.p99) == (repeated.p50, repeated.p90, repeated.p99)
    assert math.isclose(found.mean, repeated.mean, rel_tol=1e-9, abs_tol=1e-9)


@given(WEIGHTED, st.floats(0.01, 0.99))
def test_at_least_the_share_is_not_above_a_percentile(
    figures: list[tuple[float, int]], share: float
) -> None:
    value = percentile(figures, share)
    total = sum(weight for _, weight in figures)
    assert sum(weight for figure, weight in figures if figure <= value) >= share * total * (
        1 - 1e-9
    )
    assert sum(weight for figure, weight in figures if figure < value) < share * total * (1 + 1e-9)


def test_known_percentiles() -> None:
    found = spread(range(1, 101))
    assert found is not None
    assert (found.mean, found.p50, found.p90, found.p99) == (50.5, 50, 90, 99)
