"""Planner of a pipelined target: what it takes from measured times."""

import numpy as np
import pytest

from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.planner import PLAN_SECONDS, PipelinePlanner
from outrider.worker.pipeline.records import Results, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.stage_sampler import no_results
from tests.unit.worker.pipeline.build import submit

FIRST = SegmentPlan(rows=4, in_flight=3, prompt_rows=60)
NOW = 100.0


def results(rows: int, seconds: float, stages: int = 2) -> Results:
    """Results of a segment that took so long on each stage, and nothing between them."""
    visits = np.array([[rows, 0.0, 0.0, seconds]] * stages)
    plain = no_results(0)
    return Results(
        0, *(getattr(plain, name) for name in plain.__slots__[1:6]), visits, stages * seconds
    )


def planner(free: bool) -> PipelinePlanner:
    """A planner that has seen rows that cost nothing, or their full time."""
    found = PipelinePlanner(FIRST, stages=2)
    for rows in (1, 32):
        found.saw_results(results(rows, 0.01 if free else 0.01 * rows), 0.0)
    return found


def test_before_anything_is_measured_the_first_plan_holds() -> None:
    found = PipelinePlanner(FIRST, stages=2)
    assert found.replan(1, 16, NOW) == FIRST
    assert found.plain_seconds(1) == 0.0


def test_rows_that_cost_their_full_time_leave_one_by_one() -> None:
    found = planner(free=False)
    plan = found.replan(1, 16, NOW)
    assert (plan.rows, plan.in_flight) == (1, 2)
    assert found.plain_seconds(1) == pytest.approx(0.02)


def test_sequences_that_decode_share_segments_where_rows_are_free() -> None:
    found = planner(free=True)
    assert found.replan(8, 16, NOW).rows >= 4
    assert found.plain_seconds(8) == pytest.approx(0.02 / 8)


def test_a_node_row_costs_all_stages_where_one_sequence_waits_and_the_slowest_where_many_do() -> (
    None
):
    found = planner(free=False)
    assert len(found.row_costs(1)) == 0, "nothing is planned yet"
    found.replan(1, 16, NOW)
    alone, crowded = (np.diff(found.row_costs(sequences))[:4] for sequences in (1, 16))
    assert (alone > 0).all()
    assert alone == pytest.approx(2 * crowded)
    assert found.row_costs(1)[0] == pytest.approx(found.plain_seconds(1))


def test_a_plan_keeps_to_the_rows_of_the_policy_and_is_made_now_and_then() -> None:
    found = planner(free=True)
    plan = found.replan(8, 3, NOW)
    assert plan.rows <= 3
    assert found.replan(8, 16, NOW + PLAN_SECONDS / 2) is plan
    assert found.replan(8, 16, NOW + 2 * PLAN_SECONDS).rows > 3


def test_a_short_prompt_passes_a_long_one() -> None:
    found = planner(free=True)
    leader = Leader(BlockPool(24, 384), SegmentPlan(4, 9, 16), LeaderLimits(2, tree_blocks=1))
    leader.submit(submit(1, [1] * 300, 8))
    leader.submit(submit(2, [2] * 5, 8))
    leader.fill()  # by who came first: the plan has no times
    found.replan(1, 16, NOW)
    leader.share_prompts = found.share_prompts
    leader.fill()
    first, second = (one for one in leader.outgoing if isinstance(one, Segment))
    assert set(first.tokens.tolist()) == {1}
    assert second.tokens.tolist().count(2) == 5
    assert second.sample.sum() == 1  # the root of the short one
