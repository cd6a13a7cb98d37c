"""The bandit: its blocks, bins and contexts, what it learns, and what published code got wrong."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.nightjar.bandit import Bandit
from outrider.worker.speculation.planner import NodeCandidates
from tests.unit.worker.speculation.environments import (
    MOST,
    Environment,
    cliff,
    drive,
    recorded,
)

COSTS = np.linspace(0.010, 0.020, 600)


def bandit(most: int = MOST, seed: int = 0) -> Bandit:
    return Bandit(most, seed)


def tree() -> NodeCandidates:
    nodes = np.arange(MOST, dtype=np.int32)
    return NodeCandidates(nodes, np.full(MOST, 0.5, np.float32), nodes + 1)


def test_blocks_double_and_bins_are_their_roots_and_hold_one_arm() -> None:
    planner, steps = bandit(), []
    for _ in range(1023):
        plan = planner.plan([tree()], COSTS, MOST)
        assert planner.plan([tree()], COSTS, MOST).rows == plan.rows, (
            "a step that waits is planned again"
        )
        steps.append((planner.explores, plan.rows[0]))
        planner.learn(1 + plan.rows[0], 0.010)
    at = 0
    for block in (2**j for j in range(10)):
        end, number = at + block, 0
        while at < end:
            number += 1
            bin_steps = steps[at : min(at + math.isqrt(block), end)]
            assert len(set(bin_steps)) == 1
            assert number > 1 or bin_steps[0][0], "the first bin explores: 1 / 1"
            at += len(bin_steps)


def test_bins_explore_ever_less_within_a_block() -> None:
    explored: dict[int, list[bool]] = {}
    for seed in range(300):
        planner = bandit(seed=seed)
        for step in range(511):
            planner.plan([tree()], COSTS, MOST)
            if step >= 255 and (step - 255) % 16 == 0:
                explored.setdefault((step - 255) // 16 + 1, []).append(planner.explores)
            planner.learn(1, 0.010)
    for number, seen in explored.items():
        assert sum(seen) / len(seen) == pytest.approx(1 / number, abs=0.09)


@given(st.integers(1, 200))
@settings(max_examples=10, deadline=None)
def test_every_number_none_included_is_tried_at_any_batch_size(sequences: int) -> None:
    planner, chosen = bandit(3), set()
    for _ in range(2000):
        chosen.add(planner.plan([tree()] * sequences, np.zeros(4 * sequences + 1), MOST).rows[0])
        planner.learn(sequences, 0.010)
    assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("seconds", "sequences", "acceptance"),
    [(recorded, 1, 0.7), (cliff, 1, 0.2), (recorded, 4, 0.6), (cliff, 16, 0.5)],
)
def test_it_finds_the_best_number_of_a_pair_that_stays_as_it_is(
    seconds: type, sequences: int, acceptance: float
) -> None:
    environment = Environment(lambda _: acceptance, seconds)
    planner = bandit(5)
    first = drive(planner, environment, sequences, 255)
    drive(planner, environment, sequences, 768)
    later = drive(planner, environment, sequences, 7168)
    assert later.regret < min(0.12, first.regret), "what remains is what it goes on trying"


def test_it_learns_anew_once_the_pair_has_changed() -> None:
    environment = Environment(lambda step: 0.9 if step < 4000 else 0.02, recorded)
    planner = bandit(5)
    before = drive(planner, environment, 1, 4000)
    assert np.mean(before.chosen[2000:]) > 3
    drive(planner, environment, 1, 2000)
    after = drive(planner, environment, 1, 4000)
    assert after.chosen.count(0) > 2000
    assert after.regret < 0.1


def test_batch_sizes_learn_apart_however_large() -> None:
    alone = Environment(lambda _: 0.9, recorded)
    crowded = Environment(lambda _: 0.1, recorded, seed=1)
    planner = bandit(4)
    for _ in range(60):
        drive(planner, alone, 1, 50)
        drive(planner, crowded, 40, 50)
    assert np.mean(drive(planner, alone, 1, 400).chosen) > 2
    assert np.mean(drive(planner, crowded, 40, 400).chosen) < 1
    other = drive(planner, Environment(lambda _: 0.9, cliff), 60, 1)
    assert planner.explores, "60 sequences are another context than 40"
    assert len(other.chosen) == 1


def test_drafting_that_rests_comes_back_only_where_it_outweighs_the_return() -> None:
    """Arms of 10 and 9 ms a token; one draft token comes back if the return costs under 1 ms."""
    for cost, back in ((0.0005, True), (0.002, False)):
        planner = Bandit(1)
        for _ in range(2000):
            each = planner.plan([tree()], COSTS, 1).rows[0]
            planner.learn(10, 0.09 if each else 0.10)
        planner.return_seconds, planner.awaited = cost, 0
        context = planner._of(1)
        assert planner._best(context) == int(back)
        planner.awaited = 1
        assert planner._best(context) == 1, "drafting that goes on costs no return"


def test_a_steps_ceiling_is_kept() -> None:
    planner = bandit(8)
    for _ in range(200):
        assert max(planner.plan([tree()] * 2, COSTS, 3).rows) <= 3
        planner.learn(2, 0.010)
