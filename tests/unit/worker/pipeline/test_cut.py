"""Cuts of layers over stages: none is better, and what cannot be cut is refused with numbers."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import SettingsError
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.pipeline.cut import (
    PartCosts,
    cut_as_given,
    cut_by_cost,
)

COSTS = st.builds(
    PartCosts,
    st.floats(0.1, 10.0),
    st.floats(0.0, 30.0),
    st.floats(0.0, 30.0),
)


def slowest(cut: Sequence[LayerRange], costs: PartCosts) -> float:
    """Return the cost of the most expensive stage."""
    return max(stage_cost(layers, costs) for layers in cut)


def stage_cost(layers: LayerRange, costs: PartCosts) -> float:
    """Return the cost of one stage."""
    return (
        layers.count * costs.layer + layers.embeds * costs.embedding + layers.has_head * costs.head
    )


@given(layers=st.integers(1, 9), stages=st.integers(1, 5), costs=COSTS)
def test_no_other_cut_has_a_faster_slowest_stage(
    layers: int, stages: int, costs: PartCosts
) -> None:
    if stages > layers:
        return
    cut = cut_by_cost(layers, stages, costs)
    assert [number for stage in cut for number in stage.numbers] == list(range(layers))
    ends = itertools.combinations(range(1, layers), stages - 1)
    others = [
        cut_as_given(layers, [b - a for a, b in itertools.pairwise((0, *end, layers))])
        for end in ends
    ]
    assert slowest(cut, costs) <= min(slowest(other, costs) for other in others) * (1 + 1e-12)


def test_the_head_counts_as_the_layers_that_it_costs() -> None:
    cut = cut_by_cost(30, 2, PartCosts(1.0, 0.0, 10.0))
    assert [stage.count for stage in cut] == [20, 10]
    assert [stage_cost(stage, PartCosts(1.0, 0.0, 10.0)) for stage in cut] == [20.0, 20.0]


def test_equal_stages_fill_from_the_first() -> None:
    assert [stage.count for stage in cut_by_cost(8, 3, PartCosts(1.0, 0.0, 0.0))] == [3, 3, 2]


def test_a_cut_can_be_given() -> None:
    cut = cut_as_given(6, (3, 1, 2))
    assert [str(stage) for stage in cut] == [
        "layers 0 to 2 of 6", "layers 3 to 3 of 6", "layers 4 to 5 of 6",
    ]  # fmt: skip
    assert [stage.embeds for stage in cut] == [True, False, False]
    assert [stage.has_head for stage in cut] == [False, False, True]


def test_more_stages_than_layers_are_refused_with_both_numbers() -> None:
    problem = "settings.pipeline.stages: 5 is not allowed; the model has 4 layers"
    with pytest.raises(SettingsError, match=problem):
        cut_by_cost(4, 5, PartCosts(1.0, 0.0, 0.0))
    with pytest.raises(SettingsError, match=r"stages: 3 is not allowed; the model has 2 layers"):
        cut_as_given(2, (1, 1, 1))


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ((2, 3), r"2 \+ 3 = 5 layers are not allowed; the model has 4"),
        ((4, 0), r"cut\[1\]: 0 is not allowed; it must be 1 to 1024"),
        ((5, -1), r"cut\[1\]: -1 is not allowed; it must be 1 to 1024"),
    ],
)
def test_counts_that_are_no_cut_are_refused(counts: tuple[int, ...], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        cut_as_given(4, counts)
