"""Planners that name a number of draft tokens, in a target at work."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.nightjar.bandit import Bandit
from bench.nightjar.planners import Entry, FixedPlanner, MakePlanner, Table, starting
from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.messages import SetPolicy
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.planner import NO_CANDIDATES, NodeCandidates, RowPlan
from outrider.worker.target.selection import PROMPT_WAIT_SHARE
from tests.unit.worker.colocated_pair import ColocatedPair
from tests.unit.worker.pair import PASS_SECONDS, Pair
from tests.unit.worker.target.test_waiting_prompts import Watched

ENTRIES = (Entry(1, 4), Entry(2, 0), Entry(3, 2))
COSTS = np.linspace(0.010, 0.020, 600)


def table() -> FixedPlanner:
    return Table(ENTRIES)


def deep() -> FixedPlanner:
    return Table([Entry(1, 8)])


def pair_of(kind: Callable[..., Pair], make: MakePlanner, **options: Any) -> Pair:
    pair = kind(start_selector=starting(make), **options)
    pair.target.receive(SetPolicy(PolicySettings(version=2, off_below_percent=0)), pair.now)
    return pair


def tree(nodes: int) -> NodeCandidates:
    numbers = np.arange(nodes, dtype=np.int32)
    return NodeCandidates(numbers, np.full(nodes, 0.5, np.float32), numbers + 1)


@pytest.mark.parametrize(("running", "rows"), [(1, 4), (2, 0), (3, 2), (40, 2)])
def test_each_number_of_requests_has_the_tables_draft_tokens(running: int, rows: int) -> None:
    planner = table()
    assert planner.plan([tree(7)] * running, COSTS, 16).rows == [rows] * running
    assert planner.wants_drafts == (rows > 0)


def test_a_tree_or_a_pass_that_is_small_gets_what_there_is() -> None:
    planner = deep()
    assert planner.plan([tree(3), NO_CANDIDATES], COSTS, 16).rows == [3, 0]
    assert planner.plan([tree(9), tree(9)], COSTS, 4).rows == [4, 4]
    assert planner.plan([tree(9), tree(9)], COSTS[:11], 16).rows == [8, 2]
    assert planner.plan([NO_CANDIDATES], COSTS, 16).rows == [0]
    assert planner.plan([NO_CANDIDATES], COSTS, 16).choice is Choice.NO_NODES


@pytest.mark.parametrize("kind", [Pair, ColocatedPair])
def test_a_table_is_run_in_a_target(kind: Callable[..., Pair]) -> None:
    pair = pair_of(kind, table, running=3, sampling=SamplingParams(), noise=0.0)
    pair.submit([1, 2, 3], 60)
    usage = pair.run().usage
    assert 3 * usage.passes <= usage.draft_rows <= 4 * usage.passes
    assert pair.text() == pair.expected([1, 2, 3], 60)


def test_drafting_rests_where_the_table_says_none() -> None:
    pair = pair_of(Pair, table, running=2, sampling=SamplingParams())
    pair.submit([1, 5], 60, 1)
    pair.submit([2, 5], 200, 2)
    for _ in range(3):
        pair.turn()
    passes = pair.draft.sessions.counters.passes
    while pair.finished(1) is None:
        pair.turn()
        assert pair.target.report().drafting == "off"
    assert pair.draft.sessions.counters.passes == passes
    assert pair.run(2).usage.accepted_rows > 0, "one alone is drafted for again"
    assert pair.text(2) == pair.expected([2, 5], 200)


@pytest.mark.parametrize("kind", [Pair, ColocatedPair])
def test_a_bandit_tries_plain_decoding_and_drafts(kind: Callable[..., Pair]) -> None:
    numbers = set()

    class Watching(Bandit):
        def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
            planned = super().plan(candidates, costs, max_rows)
            numbers.add(self.awaited)
            return planned

    def make() -> FixedPlanner:
        return Watching(5)

    pair = pair_of(kind, make, running=1, sampling=SamplingParams())
    pair.submit([1, 2, 3], 400)
    assert pair.run().usage.accepted_rows > 0
    assert 0 in numbers
    assert len(numbers) > 1
    assert pair.text() == pair.expected([1, 2, 3], 400)


def test_a_draft_that_answers_no_more_is_not_waited_for_again_and_again() -> None:
    pair = pair_of(ColocatedPair, table, running=1, sampling=SamplingParams())
    pair.submit([1, 2, 3], 100)
    for _ in range(20):
        pair.turn()
    selector = pair.target.row_selector
    before = selector.waited_seconds
    for _ in range(100):
        if pair.target.next(pair.now) is None:
            pair.now += pair.target.max_wait(pair.now) or 0.0
    assert selector.waited_seconds - before < 4 * 0.1
    assert pair.target.next(pair.now) is not None


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_no_prompt_waits_longer_for_a_depth_than_its_passes_take(share: float) -> None:
    pair = Watched(draft_seconds=share * PASS_SECONDS, start_selector=starting(deep))
    pair.answer_both()
    assert len(pair.waits) >= 5
    assert max(pair.waits) <= PROMPT_WAIT_SHARE + share  # a draft pass that began is not broken off
    assert all(pair.nodes)
