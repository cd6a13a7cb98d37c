"""Worth of growth: what the next node of a draft should bring, and how long that is waited for."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.speculation.wait import (
    ANSWER_TOKENS,
    MOST_GROWTHS,
    next_reaches,
    patience,
    worth_of_growth,
    worth_of_text,
)
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.mirror import SUFFIX, Mirror
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.fakes import VOCABULARY

FIRST = np.array([0.8, 0.9])
"""How often the likeliest child of the root, and of another node, is right."""
DEEP = 8


def mirror_of(*nodes: tuple[int, float]) -> Mirror:
    """Return a mirror whose draft has sent nodes with these parents and chances."""
    mirror = Mirror(3)
    parents = np.array([parent for parent, _ in nodes], np.int64)
    tokens = np.arange(len(nodes), dtype=np.int32)
    chances = np.log(np.array([chance for _, chance in nodes], np.float32))
    if nodes:
        growth = Growth(3, 1, parents, tokens, chances)
        mirror.receive(growth, 64, np.ones(VOCABULARY, np.bool_))
    return mirror


def reaches_of_next(mirror: Mirror, depth: int = DEEP) -> list[float]:
    reach = Calibration().reach(mirror)
    found: list[float] = next_reaches(mirror.tables.nodes, reach, FIRST, depth).tolist()
    return found


def reach_of_next(mirror: Mirror, depth: int = DEEP) -> float:
    return reaches_of_next(mirror, depth)[0]


def test_a_root_without_nodes_gets_its_likeliest_child() -> None:
    assert reach_of_next(mirror_of()) == pytest.approx(0.8)


def test_a_chain_grows_at_its_end() -> None:
    mirror = mirror_of((0, 0.7), (1, 0.6))
    assert reach_of_next(mirror) == pytest.approx(0.7 * 0.6 * 0.9, rel=0.02)


def test_the_best_leaf_grows_not_a_node_that_has_grown() -> None:
    mirror = mirror_of((0, 0.5), (0, 0.3), (1, 0.2))
    assert reach_of_next(mirror) == pytest.approx(0.3 * 0.9, rel=0.02)


def test_a_leaf_as_deep_as_allowed_does_not_grow() -> None:
    mirror = mirror_of((0, 0.7), (1, 0.6))
    assert reach_of_next(mirror, depth=2) == 0.0
    assert reach_of_next(mirror_of(), depth=0) == 0.0


def test_what_other_sources_cover_is_not_brought_by_the_draft() -> None:
    mirror = mirror_of()
    tokens, sure = np.array([7], np.int32), np.array([-0.5], np.float32)
    mirror.add_local(np.array([ROOT], np.int32), tokens, sure, SUFFIX)
    covered = float(Calibration().reach(mirror)[0])
    assert 0.0 < covered < 1.0
    assert reach_of_next(mirror) == pytest.approx(0.8 * (1 - covered), rel=1e-4)


def test_a_leaf_that_other_sources_went_on_from_grows_where_they_are_wrong() -> None:
    mirror = mirror_of((0, 0.7))
    tokens, sure = np.array([7], np.int32), np.array([-0.5], np.float32)
    mirror.add_local(np.array([0], np.int32), tokens, sure, SUFFIX)
    leaf, covered = Calibration().reach(mirror).tolist()
    assert 0.0 < covered < leaf
    assert reach_of_next(mirror) == pytest.approx(0.9 * (leaf - covered), rel=1e-4)


def test_nodes_after_the_next_are_as_likely_as_that_down_to_the_depth_allowed() -> None:
    assert reaches_of_next(mirror_of()) == pytest.approx([0.8] * MOST_GROWTHS)
    of_three = reaches_of_next(mirror_of((0, 0.7)), depth=3)
    assert of_three == pytest.approx([0.7 * 0.9, 0.7 * 0.9, *[0.0] * 6], rel=0.02)


def test_further_growth_brings_what_other_sources_do_not_reach() -> None:
    mirror = mirror_of()
    tokens, sure = np.array([7, 8], np.int32), np.array([-0.1, -1.0], np.float32)
    mirror.add_local(np.array([ROOT, 0], np.int32), tokens, sure, SUFFIX)
    near, far = Calibration().reach(mirror).tolist()
    expected = [0.8 * (1 - near), 0.8 * (1 - far), 0.8]
    assert 0 < far < near < 1
    assert reaches_of_next(mirror)[:3] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("depth", "worth"), [(1, 0.1), (2, 0.3), (3, 0.7)])
def test_growth_that_brings_little_at_once_is_worth_what_follows_it(
    depth: int, worth: float
) -> None:
    reach, costs = np.array([0.9], np.float32), np.zeros(5)
    more = np.array([[0.1], [0.7], [0.9]], np.float32)[:depth]
    assert worth_of_growth(reach, more, costs, 1.0, 0.5) == pytest.approx(worth)


def test_a_text_is_worth_the_growths_of_the_answer_that_follows() -> None:
    assert worth_of_text(1.0, 0.5, 20) == pytest.approx(1.0 + 9 * 0.5)
    assert worth_of_text(1.0, 0.5, 1) == worth_of_text(1.0, 1.5, 20) == 1.0
    assert worth_of_text(1.0, 0.5, 10**6) == worth_of_text(1.0, 0.5, ANSWER_TOKENS)


chances = st.lists(st.floats(1 / 64, 1.0, width=32), max_size=6).map(
    lambda some: np.array(sorted(some, reverse=True), np.float32)
)


@given(chances, chances, st.lists(st.floats(0.0, 0.01), min_size=1, max_size=8))
@example(np.zeros(0, np.float32), np.array([0.5], np.float32), [0.0])
def test_growth_is_worth_what_the_best_pass_gains_by_it(
    reach: np.ndarray, more: np.ndarray, steps: list[float]
) -> None:
    costs = np.array([0.01, *(0.01 + one for one in itertools.accumulate(steps))])

    def best(chances: list[float]) -> float:
        """Return the most that a pass is worth, by trying each number of rows."""
        ranked = sorted(chances, reverse=True)
        counts = range(min(len(ranked), len(costs) - 1) + 1)
        return max(sum(ranked[:k]) - 100.0 * float(costs[k]) for k in counts)

    expected = best([*reach.tolist(), *more.tolist()]) - best(reach.tolist())
    found = worth_of_growth(reach, more.reshape(1, -1), costs, 100.0, 1.0)
    assert found == pytest.approx(expected, abs=1e-5)
    assert expected >= 0.0


@pytest.mark.parametrize(
    ("since", "seconds"),
    [
        (0.0, 0.0),  # four milliseconds are too long for three of worth
        (0.002, 0.005),  # what has passed is lost: two more are not
        (0.004, 0.003),  # it is due
        (0.006, 0.001),  # late, and worth one more
        (0.008, 0.0),
    ],
)
def test_growth_is_waited_for_while_its_time_is_worth_less(since: float, seconds: float) -> None:
    assert patience(0.3, 100.0, 0.004, since) == pytest.approx(seconds)
