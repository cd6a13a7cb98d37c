"""The order of candidates, the planner and the switch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.planner import (
    Goodput,
    NodeCandidates,
    Seconds,
    merge_few,
    merge_many,
    sorted_candidates,
)
from outrider.worker.speculation.switch import Drafting, Switch, SwitchSettings
from outrider.worker.target.selection import RowSelector
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.mirror_table import MirrorNodes
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.fakes import FlatCosts


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


def test_goodput_takes_rows_until_they_cost_more_than_they_bring() -> None:
    planner = Goodput(plain_rate=100)  # one token is worth 10 ms
    costs = linear(0.010, 0.002, 16)  # so a row must bring 0.2
    plan = planner.plan([candidates(0.9, 0.5, 0.21, 0.19, 0.1)], costs, 16)
    assert plan.rows == [3]
    assert plan.value == pytest.approx(0.9 + 0.5 + 0.21 - 100 * 0.016, abs=1e-6)


def test_goodput_speculates_less_where_rows_are_dear() -> None:
    reach = candidates(0.8, 0.6, 0.4, 0.3, 0.2)
    taken = [
        int(Goodput(100).plan([reach], linear(0.01, each, 8), 8).rows[0])
        for each in (0.0001, 0.0025, 0.0045, 0.009)
    ]
    assert taken == [5, 4, 2, 0]


def test_goodput_looks_past_a_cliff_that_pays_and_stops_before_one_that_does_not() -> None:
    costs = np.array([0.010, 0.0102, 0.016, 0.0161, 0.0162, 0.0163])
    assert Goodput(100).plan([candidates(0.9, 0.5, 0.4, 0.4, 0.3)], costs, 8).rows == [5]
    assert Goodput(100).plan([candidates(0.9, 0.2, 0.1, 0.1, 0.1)], costs, 8).rows == [1]


def test_goodput_shares_one_budget_over_sequences() -> None:
    plan = Goodput(100).plan(
        [candidates(0.9, 0.3, 0.1), candidates(), candidates(0.8, 0.7, 0.6)],
        linear(0.01, 0.0025, 16),
        16,
    )
    assert plan.rows == [2, 0, 3]
    few = Goodput(100).plan([candidates(0.9, 0.3), candidates(0.8, 0.7)], linear(0.01, 0, 3), 16)
    assert few.rows == [1, 2]


def test_shallow_nodes_win_ties_between_sequences() -> None:
    deep, shallow = candidates(0.5, depth=3), candidates(0.5, depth=1)
    assert Goodput(1).plan([deep, shallow], linear(0.01, 0, 1), 4).rows == [0, 1]


def test_the_ceilings_hold() -> None:
    planner = Goodput(1.0)
    two = [candidates(*[0.9] * 6), candidates(*[0.9] * 6)]
    assert planner.plan(two[:1], linear(0.01, 0, 16), 4).rows == [4]
    assert planner.plan(two, linear(0.01, 0, 16), 4).rows == [4, 4]
    assert sum(planner.plan(two, linear(0.01, 0, 5), 4).rows) == 5
    assert planner.plan([], linear(0.01, 0, 5), 4).rows == []


@given(
    st.lists(st.lists(st.floats(0, 1, width=32), max_size=8), min_size=1, max_size=4),
    st.lists(st.floats(0, 0.01), min_size=1, max_size=12),
    st.floats(1, 1000),
)
def test_goodput_finds_the_best_count(
    reaches: list[list[float]], rises: list[float], rate: float
) -> None:
    costs = 0.01 + np.cumsum(rises)
    trees = [candidates(*sorted(reach, reverse=True)) for reach in reaches]
    plan = Goodput(rate).plan(trees, costs, 100)
    best = sorted((r for reach in reaches for r in reach), reverse=True)
    values = [sum(best[:k]) - rate * costs[k] for k in range(min(len(best), len(rises) - 1) + 1)]
    assert plan.value == pytest.approx(max(values), rel=1e-5, abs=1e-5)
    taken = sum(float(t.reach[:k].sum()) for t, k in zip(trees, plan.rows, strict=True))
    assert taken - rate * costs[sum(plan.rows)] == pytest.approx(plan.value, rel=1e-5, abs=1e-5)


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


def test_the_price_of_time_follows_the_worker() -> None:
    planner = Goodput(plain_rate=100, memory_seconds=1.0)
    for _ in range(500):
        planner.learn(tokens=4, seconds=0.01)
    assert planner.rate == pytest.approx(400, rel=0.02)


def test_a_request_that_starts_is_not_priced_by_what_the_one_before_wrote() -> None:
    planner = Goodput(plain_rate=100)
    for _ in range(500):
        planner.learn(tokens=5, seconds=0.01)
    planner.start(1)
    assert planner.rate == pytest.approx(100)


def test_a_request_that_joins_others_moves_the_price_by_its_share() -> None:
    planner = Goodput(plain_rate=100, prior_seconds=5.0, memory_seconds=5.0)
    for _ in range(5000):
        planner.learn(tokens=5, seconds=0.01)
    planner.start(4)  # three go on that write five times as much
    assert planner.rate == pytest.approx(100 * (3 * 5 + 1) / 4, rel=0.01)


def test_time_is_worth_more_from_the_first_step_of_more_sequences() -> None:
    planner = Goodput(plain_rate=100, memory_seconds=1.0)
    for _ in range(500):
        planner.learn(tokens=2, seconds=0.01)
    planner.plain_rate = 400
    assert planner.rate == pytest.approx(800, rel=0.02)
    for _ in range(500):
        planner.learn(tokens=4, seconds=0.01)
    assert planner.rate == pytest.approx(400, rel=0.02)


def drive(
    switch: Switch, now: float, seconds: float, gain: float, costs: float = 1.0
) -> tuple[float, float]:
    """Steps of 10 ms with this gain while drafting; returns the time and the seconds drafted.

    `costs`: what step costs say of a plain step, over what it takes.
    """
    drafted = 0.0
    end = now + seconds
    while now < end:
        now += 0.01
        drafted += 0.01 if switch.drafting else 0.0
        switch.observe(now, 0.01 * costs * (gain if switch.drafting else 1.0), 0.01)
    return now, drafted


def test_drafting_that_pays_stays_on() -> None:
    switch = Switch(0.0)
    _, drafted = drive(switch, 0.0, 60.0, gain=1.2)
    assert 59.0 < drafted < 60.0  # but for checks


def test_drafting_that_does_not_pay_goes_off_after_its_dwell() -> None:
    switch = Switch(0.0)
    now, _ = drive(switch, 0.0, 4.9, gain=0.9)
    assert switch.drafting
    drive(switch, now, 0.2, gain=0.9)
    assert not switch.drafting


def test_probes_cost_ever_less_while_they_fail() -> None:
    switch = Switch(0.0)
    now, _ = drive(switch, 0.0, 5.1, gain=0.9)
    now, first = drive(switch, now, 60.0, gain=0.9)
    now, second = drive(switch, now, 600.0, gain=0.9)
    assert 1.0 < first < 4.0
    assert second < 0.01 * 600
    assert second > 0.5


def test_a_probe_that_pays_brings_drafting_back() -> None:
    switch = Switch(0.0)
    now, _ = drive(switch, 0.0, 5.1, gain=0.9)
    now, _ = drive(switch, now, 17.0, gain=1.5)
    assert switch.state is Drafting.ON


def test_between_the_thresholds_the_switch_stays_as_it_is() -> None:
    switch = Switch(0.0)
    now, _ = drive(switch, 0.0, 30.0, gain=1.1)
    assert switch.state is Drafting.ON
    now, _ = drive(switch, now, 30.0, gain=0.9)
    now, drafted = drive(switch, now, 300.0, gain=1.1)
    assert drafted < 10


def test_an_idle_worker_decides_nothing() -> None:
    switch = Switch(0.0, SwitchSettings(dwell_seconds=5.0))
    switch.observe(100.0, 0.005, 0.01)
    assert switch.state is Drafting.ON


def test_step_costs_of_a_quieter_machine_do_not_turn_off_drafting_that_pays() -> None:
    switch = Switch(0.0)
    _, drafted = drive(switch, 0.0, 60.0, gain=1.2, costs=0.7)
    assert drafted > 58.0
    assert switch.gain == pytest.approx(1.2, rel=0.02)


def test_step_costs_of_a_busier_machine_do_not_keep_up_drafting_that_does_not_pay() -> None:
    switch = Switch(0.0)
    now, _ = drive(switch, 0.0, 11.0, gain=0.9, costs=1.5)
    _, drafted = drive(switch, now, 60.0, gain=0.9, costs=1.5)
    assert drafted < 5.0


def test_plain_answers_tell_what_plain_decoding_takes() -> None:
    switch = Switch(0.0)
    for _ in range(100):
        switch.saw_plain(0.008, 0.010)
    assert switch.scale == pytest.approx(1.25)


def test_drafting_that_a_policy_allows_again_starts_anew() -> None:
    row_selector = RowSelector.start(FlatCosts(), PolicySettings(), 65, 0.0)  # type: ignore[arg-type]
    for second in range(1, 60):
        row_selector.switch.observe(float(second), 0.5, 1.0)
    assert not row_selector.switch.drafting
    row_selector.set_policy(PolicySettings(version=1, speculate=False), 60.0)
    row_selector.set_policy(PolicySettings(version=2), 61.0)
    assert row_selector.switch.drafting
