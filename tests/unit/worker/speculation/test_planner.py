"""The order of candidates, and the planner."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.counters import Choice
from outrider.worker.speculation.planner import (
    NodeCandidates,
    Seconds,
    merge_few,
    merge_many,
    plan_rows,
    sorted_candidates,
)
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.mirror_table import MirrorNodes
from outrider.worker.tree.walk import ROOT


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


def candidates(*reach: float, depth: int = 1) -> NodeCandidates:
    count = len(reach)
    return NodeCandidates(
        np.arange(count, dtype=np.int32), floats(*reach), np.full(count, depth, np.int32)
    )


def candidates_of(
    reach: Floats, parent: Ints, token: Ints, depth: Ints, limit: int, *ends: int
) -> NodeCandidates:
    """Sort nodes of one mirror."""
    nodes = MirrorNodes.empty(len(reach))._replace(parent=parent, token=token, depth=depth)
    return NodeCandidates(*sorted_candidates(reach, nodes, limit, ints(*ends)))


def linear(first: float, each: float, rows: int) -> Seconds:
    return first + each * np.arange(rows + 1, dtype=np.float64)


def test_candidates_come_by_reach_then_depth_then_index() -> None:
    parent, depth = ints(ROOT, 0, ROOT, ROOT, 2), ints(1, 2, 1, 1, 2)
    reach = floats(0.5, 0.5, 0.5, 0.7, 0.4)
    order = candidates_of(reach, parent, ints(1, 2, 3, 4, 5), depth, 100)
    assert order.nodes.tolist() == [3, 0, 2, 1, 4]
    assert order.depth.tolist() == [1, 1, 1, 2, 2]
    np.testing.assert_array_equal(order.reach, reach[order.nodes])


@pytest.mark.parametrize(
    ("limit", "end_tokens", "nodes"),
    [
        (4, (), [0, 1, 3, 2]),
        (3, (), [0, 1, 3]),  # a row at the limit can add no token
        (2, (), [0, 3]),
        (1, (), []),
        (9, (2,), [0, 3]),  # neither an end token's row nor what hangs below it
        (9, (1, 4), []),
    ],
)
def test_rows_that_can_add_nothing_are_no_candidates(
    limit: int, end_tokens: tuple[int, ...], nodes: list[int]
) -> None:
    parent, depth, token = ints(ROOT, 0, 1, ROOT), ints(1, 2, 3, 1), ints(1, 2, 3, 4)
    reach = floats(0.9, 0.5, 0.1, 0.2)
    order = candidates_of(reach, parent, token, depth, limit, *end_tokens)
    assert order.nodes.tolist() == nodes


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60))
def test_a_parent_always_precedes_its_child(nodes: list[tuple[float, float]]) -> None:
    parent = ints(*(int(at * (i + 1)) - 1 for i, (at, _) in enumerate(nodes)))
    parent = np.minimum(parent, np.arange(len(nodes), dtype=np.int32) - 1)
    depth, reach = np.empty_like(parent), np.empty(len(nodes), np.float32)
    for i, (_, share) in enumerate(nodes):
        above = parent[i]
        depth[i] = 1 if above == ROOT else depth[above] + 1
        reach[i] = np.float32(share) * (np.float32(1) if above == ROOT else reach[above])
    token = np.zeros_like(parent)
    order = candidates_of(reach, parent, token, depth, 10**6).nodes.tolist()
    assert sorted(order) == np.flatnonzero(reach > 0).tolist()
    assert all(parent[n] == ROOT or order.index(parent[n]) < order.index(n) for n in order)


def test_it_takes_rows_until_they_cost_more_than_they_bring() -> None:
    costs = linear(0.010, 0.002, 16)
    rate = 100  # one token is worth 10 ms, so a row must bring 0.2
    plan = plan_rows([candidates(0.9, 0.5, 0.21, 0.19, 0.1)], costs, rate, 16)
    assert plan.rows == [3]
    assert plan.choice is Choice.ROWS_PAY


def test_it_speculates_less_where_rows_are_dear() -> None:
    reach = candidates(0.8, 0.6, 0.4, 0.3, 0.2)
    taken = [
        int(plan_rows([reach], linear(0.01, each, 8), 100, 8).rows[0])
        for each in (0.0001, 0.0025, 0.0045, 0.009)
    ]
    assert taken == [5, 4, 2, 0]


def test_it_looks_past_a_cliff_that_pays_and_stops_before_one_that_does_not() -> None:
    costs = np.array([0.010, 0.0102, 0.016, 0.0161, 0.0162, 0.0163])
    assert plan_rows([candidates(0.9, 0.5, 0.4, 0.4, 0.3)], costs, 100, 8).rows == [5]
    assert plan_rows([candidates(0.9, 0.2, 0.1, 0.1, 0.1)], costs, 100, 8).rows == [1]


def test_it_shares_one_budget_over_sequences() -> None:
    plan = plan_rows(
        [candidates(0.9, 0.3, 0.1), candidates(), candidates(0.8, 0.7, 0.6)],
        linear(0.01, 0.0025, 16),
        100,
        16,
    )
    assert plan.rows == [2, 0, 3]
    few = plan_rows([candidates(0.9, 0.3), candidates(0.8, 0.7)], linear(0.01, 0, 3), 100, 16)
    assert few.rows == [1, 2]


def test_shallow_nodes_win_ties_between_sequences() -> None:
    deep, shallow = candidates(0.5, depth=3), candidates(0.5, depth=1)
    assert plan_rows([deep, shallow], linear(0.01, 0, 1), 1, 4).rows == [0, 1]


def test_the_ceilings_hold() -> None:
    two = [candidates(*[0.9] * 6), candidates(*[0.9] * 6)]
    assert plan_rows(two[:1], linear(0.01, 0, 16), 1, 4).rows == [4]
    assert plan_rows(two, linear(0.01, 0, 16), 1, 4).rows == [4, 4]
    assert sum(plan_rows(two, linear(0.01, 0, 5), 1, 4).rows) == 5
    assert plan_rows([], linear(0.01, 0, 5), 1, 4).rows == []


@given(
    st.lists(st.lists(st.floats(0, 1, width=32), max_size=8), min_size=1, max_size=4),
    st.lists(st.floats(0, 0.01), min_size=1, max_size=12),
    st.floats(1, 1000),
)
def test_it_finds_the_best_count(
    reaches: list[list[float]], rises: list[float], rate: float
) -> None:
    costs = 0.01 + np.cumsum(rises)
    trees = [candidates(*sorted(reach, reverse=True)) for reach in reaches]
    plan = plan_rows(trees, costs, rate, 100)
    best = sorted((r for reach in reaches for r in reach), reverse=True)
    values = [sum(best[:k]) - rate * costs[k] for k in range(min(len(best), len(rises) - 1) + 1)]
    taken = sum(float(t.reach[:k].sum()) for t, k in zip(trees, plan.rows, strict=True))
    value = taken - rate * costs[sum(plan.rows)]
    assert value == pytest.approx(max(values), rel=1e-5, abs=1e-5)
    assert plan.reach.tolist()[: len(rises) - 1] == best[: min(len(rises) - 1, len(plan.reach))]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 5)), max_size=8),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 40),
    st.integers(0, 9),
)
def test_sorting_many_candidates_is_merging_them(
    trees: list[list[tuple[float, int]]], most: int, each: int
) -> None:
    made = []
    for tree in trees:
        tree.sort(key=lambda node: (-node[0], node[1]))
        reach = np.array([node[0] for node in tree], np.float32)
        depth = np.array([node[1] for node in tree], np.int32)
        made.append(NodeCandidates(np.arange(len(tree), dtype=np.int32), reach, depth))
    few, many = merge_few(made, most, each), merge_many(made, most, each)
    assert [array.tolist() for array in few] == [array.tolist() for array in many]
