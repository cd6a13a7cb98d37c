"""The planners that measure nothing: a table by running requests, and none."""

import numpy as np

from outrider.contract.planning import Choice, TableEntry
from outrider.worker.speculation.planner import NO_CANDIDATES, Candidates
from outrider.worker.speculation.static import Off, Static

TABLE = (
    TableEntry(first=1, last=2, draft_tokens=5),
    TableEntry(first=3, last=8, draft_tokens=2),
    TableEntry(first=9, draft_tokens=0),
)
COSTS = np.linspace(0.010, 0.012, 65)


def tree(count: int) -> Candidates:
    nodes = np.arange(count, dtype=np.int32)
    reach = np.linspace(0.9, 0.1, count, dtype=np.float32)
    return Candidates(nodes, reach, np.ones(count, np.int32))


def test_each_sequence_gets_what_the_table_has_for_those_that_run() -> None:
    planner = Static(100.0, TABLE)
    for running, rows in ((1, 5), (2, 5), (3, 2), (8, 2), (9, 0), (500, 0)):
        plan = planner.plan([tree(7)] * running, COSTS, 16)
        assert plan.rows == [min(rows, 64)] * running
        assert planner.wants_drafts == (rows > 0)
        assert planner.choice is (Choice.TABLE if rows else Choice.TABLE_NONE)


def test_no_sequence_gets_more_than_its_tree_the_ceiling_or_the_pass_has() -> None:
    planner = Static(100.0, TABLE)
    assert planner.plan([tree(3), NO_CANDIDATES], COSTS, 16).rows == [3, 0]
    assert planner.plan([tree(7), tree(7)], COSTS, 4).rows == [4, 4]
    assert planner.plan([tree(7), tree(7)], COSTS[:8], 16).rows == [5, 2]
    assert planner.plan([NO_CANDIDATES], COSTS, 16).rows == [0]
    assert planner.choice is Choice.NO_NODES


def test_off_runs_no_rows_and_wants_no_drafts() -> None:
    planner = Off(100.0)
    assert planner.plan([tree(7)] * 2, COSTS, 16).rows == [0, 0]
    assert not planner.wants_drafts
    assert planner.choice is Choice.OFF
