"""How devices are shared out between target and draft, by made-up step costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.placement.formula import Curve
from outrider.cli.profile.split_choice import (
    MOST_DEPTH,
    SplitCosts,
    cheap_rows,
    recommended,
    splits,
)


def flat(milliseconds: float) -> Curve:
    """Rows cost nothing up to 16, and much from there on."""
    return {1: 1e-3 * milliseconds, 17: 1e-3 * milliseconds, 64: 4e-3 * milliseconds}


LLAMA_70B = SplitCosts(
    target={2: flat(20.0), 4: flat(11.0), 6: flat(8.5), 8: flat(7.0)},
    draft={1: flat(4.0), 2: flat(2.6), 4: flat(2.0), 6: flat(1.9)},
)
"""Costs on eight GPUs; the times are made up, their fall with degrees is that of large models."""


def test_every_split_that_fits_is_there_and_plain_decoding_with_all() -> None:
    found = splits(LLAMA_70B, 8, 0.7)
    names = {one.name for one in found}
    assert {"4 + 4", "6 + 2", "2 + 6", "6 + 1", "8, no draft"} <= names
    assert all(one.target + one.draft <= 8 for one in found)
    rates = [one.tokens_per_second for one in found]
    assert rates == sorted(rates, reverse=True)


def test_a_good_draft_is_worth_gpus_and_a_bad_one_is_not() -> None:
    assert recommended(splits(LLAMA_70B, 8, 0.8)).draft > 0
    alone = recommended(splits(LLAMA_70B, 8, 0.02))
    assert (alone.target, alone.draft, alone.nodes_ahead) == (8, 0, 0)


def test_depth_is_how_often_the_draft_passes_while_the_target_does_once() -> None:
    found = splits(LLAMA_70B, 8, 0.7)
    depths = {one.name: one.depth for one in found}
    assert depths["4 + 4"] in (5, 6)  # 11.3 ms of 2.0
    assert depths["6 + 2"] in (3, 4)  # 8.8 ms of 2.6
    assert next(one for one in found if one.name == "6 + 2").nodes_ahead == 16 * depths["6 + 2"]


def test_a_draft_that_is_as_slow_as_the_target_still_has_a_depth() -> None:
    costs = SplitCosts({1: flat(5.0), 2: flat(3.0)}, {1: flat(9.0)})
    assert next(one for one in splits(costs, 2, 0.5) if one.draft).depth in (1, 2)


def test_rows_are_those_that_cost_next_to_nothing() -> None:
    assert cheap_rows(flat(5.0)) >= 16
    assert cheap_rows({1: 1.0, 2: 2.0}) == 1


@given(target=st.floats(0.1, 100), draft=st.floats(0.01, 100), acceptance=st.floats(0.02, 0.95))
def test_whatever_passes_cost_there_is_a_split(
    target: float, draft: float, acceptance: float
) -> None:
    costs = SplitCosts({1: flat(target), 3: flat(target / 2)}, {1: flat(draft)})
    found = splits(costs, 4, acceptance)
    assert recommended(found) in found
    assert all(0 <= one.depth <= MOST_DEPTH and one.tokens_per_second > 0 for one in found)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({}, "target: missing"),
        ({"target": {"1": {"rows": {"1": 0.1}}}}, "draft: missing"),
        ({"target": {"zero": {"rows": {"1": 0.1}}}}, "target.zero"),
        ({"target": {"1": {"rows": {"1": -0.1}}}}, "target.1"),
        ({"target": {"1": 7}}, "target.1"),
        ({"target": [1]}, "target: missing"),
    ],
)
def test_a_table_that_is_none_is_refused_by_name(table: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SplitCosts.of(table)
