"""Acceptance: reach and its learning; the error scale."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.speculation.acceptance import (
    Calibration,
    ErrorScale,
    first_child_surplus,
    outcomes,
    reach_of,
)
from outrider.worker.tree.growth import Floats, Growth, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import ROOT

NONE = np.empty(0, np.int32)


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def mirror_of(*nodes: tuple[int, int, float]) -> Mirror:
    """A mirror of (parent id, token, estimated probability) nodes."""
    mirror = Mirror(0)
    parents = np.array([parent for parent, _, _ in nodes], np.int64)
    tokens = ints(*(token for _, token, _ in nodes))
    logprobs = np.log(np.array([p for _, _, p in nodes], np.float32))
    growth = Growth(0, 1, parents, tokens, logprobs)
    mirror.receive(growth, len(nodes), np.ones(100, np.bool_))
    return mirror


def teach(calibration: Calibration, estimate: float, truth: float, rounds: int) -> None:
    """Teach outcomes of a first child that is sampled with probability `truth`."""
    rng = np.random.default_rng(7)
    mirror = mirror_of((0, 5, estimate))
    for hit in rng.random(rounds) < truth:
        calibration.learn(mirror, NONE, ints(5 if hit else 6))


def test_reach_is_the_product_along_the_path_before_anything_is_learned() -> None:
    reach = Calibration().reach(mirror_of((0, 5, 0.6), (1, 6, 0.5), (0, 7, 0.3), (2, 8, 0.9)))
    np.testing.assert_allclose(reach, [0.6, 0.3, 0.3, 0.27], atol=0.02)


def test_siblings_share_at_most_one() -> None:
    reach = Calibration().reach(mirror_of((0, 5, 0.9), (0, 6, 0.9), (0, 7, 0.9)))
    assert reach.sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("estimate", "truth"), [(0.9, 0.4), (0.2, 0.7), (0.5, 0.05)])
def test_an_estimate_becomes_the_observed_match_rate(estimate: float, truth: float) -> None:
    calibration = Calibration()
    teach(calibration, estimate, truth, 1500)
    assert calibration.reach(mirror_of((0, 5, estimate)))[0] == pytest.approx(truth, abs=0.08)


def test_what_was_learned_long_ago_is_forgotten() -> None:
    calibration = Calibration()
    teach(calibration, 0.5, 0.0, 3000)
    teach(calibration, 0.5, 1.0, 3000)
    assert calibration.reach(mirror_of((0, 5, 0.5)))[0] > 0.9


def test_a_request_starts_from_the_workers_average() -> None:
    worker = Calibration()
    teach(Calibration(worker), 0.9, 0.3, 2000)
    fresh = Calibration(worker)
    assert fresh.reach(mirror_of((0, 5, 0.9)))[0] == pytest.approx(0.3, abs=0.1)


def test_children_are_learned_whether_selected_or_not() -> None:
    mirror = mirror_of((0, 5, 0.5), (0, 6, 0.25), (1, 7, 0.5))
    calibration = Calibration()
    before = calibration.reach(mirror)
    for _ in range(200):
        calibration.learn(mirror, ints(0), ints(6, 9))  # node 1 is right and was not selected
    after = calibration.reach(mirror)
    assert after[1] > before[1] + 0.3
    assert after[0] < before[0] - 0.2
    assert after[2] / after[0] < 0.1


def test_children_of_rows_that_did_not_run_teach_nothing() -> None:
    mirror = mirror_of((0, 5, 0.5), (1, 7, 0.5))
    calibration = Calibration()
    before = calibration.rates[:, 1].copy()
    calibration.learn(mirror, NONE, ints(5))
    np.testing.assert_array_equal(calibration.rates[:, 1], before)


def test_local_nodes_have_a_curve_of_their_own() -> None:
    calibration = Calibration()
    mirror = Mirror(0)
    mirror.add_local(ints(ROOT), ints(5), np.log(np.array([0.5], np.float32)))
    before = calibration.rates[0].copy()
    for _ in range(100):
        calibration.learn(mirror, NONE, ints(5))
    assert calibration.reach(mirror)[0] > 0.8
    np.testing.assert_array_equal(calibration.rates[0], before)


trees = st.lists(
    st.tuples(st.floats(0, 1), st.floats(-60, 0), st.integers(0, 9)), min_size=1, max_size=40
)


@given(trees, st.lists(st.booleans(), max_size=30))
def test_reach_never_rises_along_a_path(
    nodes: list[tuple[float, float, int]], outcomes: list[bool]
) -> None:
    mirror = Mirror(0)
    parents = np.array([int(at * i) for i, (at, _, _) in enumerate(nodes)], np.int64)
    tokens = np.arange(len(nodes), dtype=np.int32)
    logprobs = np.array([p for _, p, _ in nodes], np.float32)
    growth = Growth(0, 1, parents, tokens, logprobs)
    mirror.receive(growth, len(nodes), np.ones(100, np.bool_))
    calibration = Calibration()
    for hit in outcomes:
        calibration.learn(mirror, ints(0), ints(0 if hit else -1, 1))
    reach: Floats = calibration.reach(mirror)
    above = np.where(mirror.parent == ROOT, 1, reach[mirror.parent])
    assert (reach <= above).all()
    assert (reach >= 0).all()
    for parent in set(mirror.parent.tolist()):
        limit = 1.0 if parent == ROOT else reach[parent]
        assert reach[mirror.parent == parent].sum() <= limit * (1 + 1e-5)


def surplus(mirror: Mirror, sampled: int) -> float:
    """Of a pass over the root's row alone."""
    nodes = mirror.tables.nodes
    return float(first_child_surplus(nodes, outcomes(nodes, len(mirror), NONE, ints(sampled))))


def run_scale(scale: ErrorScale, margin: float, truth: float, steps: int) -> float:
    """A draft whose first child leads the second by `margin` logits; returns its last estimate."""
    rng = np.random.default_rng(3)
    estimate = 0.5
    for hit in rng.random(steps) < truth:
        estimate = 1 / (1 + math.exp(-margin / scale.value))
        mirror = mirror_of((0, 5, estimate), (0, 6, 1 - estimate))
        scale.learn(surplus(mirror, 5 if hit else 7))
    return estimate


@pytest.mark.parametrize("truth", [0.6, 0.9])
def test_the_error_scale_makes_the_first_child_as_sure_as_it_is_right(truth: float) -> None:
    assert run_scale(ErrorScale(), 2.0, truth, 4000) == pytest.approx(truth, abs=0.06)


@pytest.mark.parametrize(("truth", "bound"), [(0.0, 8.0), (1.0, 0.25)])
def test_the_error_scale_is_bounded(truth: float, bound: float) -> None:
    scale = ErrorScale(rate=1.0)
    run_scale(scale, 2.0 if truth == 0 else 0.2, truth, 300)
    assert scale.value == pytest.approx(bound)


def test_no_node_moves_no_scale() -> None:
    scale = ErrorScale()
    scale.learn(surplus(Mirror(0), 5))
    assert scale.value == 1.0


def test_a_node_is_as_likely_as_the_surer_of_its_sources_says() -> None:
    """And each learns by itself; a source that does not count is not heard."""
    mirror = Mirror(root_position=3)
    growth = Growth(3, 1, np.zeros(1, np.int64), np.array([5], np.int32), np.float32([-1.6]))
    mirror.receive(growth, granted=8, allowed=np.ones(10, np.bool_))
    mirror.add_local(np.array([-1], np.int32), np.array([5], np.int32), np.float32([-0.1]))
    mirror.add_local(np.array([-1], np.int32), np.array([6], np.int32), np.float32([-3.0]))
    nodes, calibration = mirror.tables.nodes, Calibration()
    both, draft_alone, suffix_alone = (
        reach_of(nodes, 2, calibration.rates, sources).tolist() for sources in (3, 1, 2)
    )
    assert both[0] == suffix_alone[0] > draft_alone[0] > 0
    assert draft_alone[1] == 0 < suffix_alone[1] == both[1]
    before = calibration.rates.copy()
    calibration.learn(mirror, np.zeros(0, np.int32), np.array([5], np.int32))
    hits = calibration.curves.matches.hits.sum(axis=2)
    trials = calibration.curves.matches.trials.sum(axis=2)
    assert hits[:, 0].tolist() == pytest.approx([1, 1, 0, 0])
    assert trials[:, 0].tolist() == pytest.approx([1, 2, 0, 0])
    assert hits[:, 1].tolist() == pytest.approx([0, 0, 0, 0])
    assert trials[:, 1].tolist() == pytest.approx([0, 1, 0, 0])
    assert (calibration.rates != before).any(axis=(1, 2)).tolist() == [True, True, False, False]


def test_a_local_node_is_judged_apart_where_the_draft_proposes_another_token() -> None:
    """Before the draft has grown, it is as likely as such nodes were, whatever the draft said."""
    calibration, half = Calibration(), np.float32([math.log(0.5)])
    for sampled in (5, 5, 5, 6) * 300:
        mirror = mirror_of((0, 5, 0.9))
        mirror.add_local(ints(ROOT), ints(sampled), half)
        calibration.learn(mirror, NONE, ints(sampled))
        mirror = mirror_of((0, 5, 0.9))
        mirror.add_local(ints(ROOT), ints(6), half)
        calibration.learn(mirror, NONE, ints(5))
    alone = Mirror(0)
    alone.add_local(ints(ROOT), ints(6), half)
    reach = calibration.reach(alone)[0]
    assert reach == pytest.approx(0.5, abs=0.05)
    beside = calibration.reach(mirror)[1]
    assert beside == pytest.approx(0.2, abs=0.05)


def test_first_guesses_are_learned_apart_for_the_root_and_below_it() -> None:
    """Whatever the draft thinks of them; a request begins as the worker's average."""
    worker = Calibration()
    one, before = Calibration(worker), worker.first.copy()
    for _ in range(300):
        mirror = mirror_of((0, 5, 0.9), (0, 6, 0.1), (1, 7, 0.6))
        one.learn(mirror, ints(0), ints(5, 8))
    assert one.first[0] > 0.95 > before[0]
    assert one.first[1] < 0.05 < before[1]
    assert worker.first[0] > before[0]
    assert Calibration(worker).first.tolist() == worker.first.tolist()


def test_a_row_whose_node_has_not_grown_says_nothing_of_first_guesses() -> None:
    calibration = Calibration()
    before = calibration.first.copy()
    calibration.learn(mirror_of((0, 5, 0.9)), ints(0), ints(5, 8))
    assert calibration.first[0] > before[0]
    assert calibration.first[1] == before[1]
