"""Planners without any measurement: a table by running requests, and plain decoding.

The table is vLLM's `num_speculative_tokens_per_batch_size`.
"""

import bisect
from collections.abc import Sequence

from outrider.contract.planning import Choice, PlannerKind, TableEntry
from outrider.worker.model.step_costs import Seconds
from outrider.worker.speculation.planner import (
    Candidates,
    LongRunRate,
    RowPlan,
    best_of_each,
)


class Static(LongRunRate):
    """Gives each sequence the draft tokens that a table has for the number of those that run."""

    kind = PlannerKind.STATIC

    def __init__(self, plain_rate: float, table: Sequence[TableEntry]) -> None:
        """`table`: as `table_problems` finds none with, one entry at least."""
        super().__init__(plain_rate)
        self._first = [entry.first for entry in table]
        self._tokens = [entry.draft_tokens for entry in table]
        self.awaited = self._tokens[0]
        self.choice = Choice.TABLE

    @property
    def wants_drafts(self) -> bool:
        """True unless the table says 0."""
        return self.awaited > 0

    def plan(self, candidates: list[Candidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan the table's rows for each sequence."""
        at = bisect.bisect_right(self._first, len(candidates)) - 1
        self.awaited = min(self._tokens[at], max_rows)
        plan = best_of_each(candidates, self.awaited, costs, self.rate)
        if self.awaited == 0:
            self.choice = Choice.TABLE_NONE
        else:
            self.choice = Choice.TABLE if any(plan.rows) else Choice.NO_NODES
        return plan


class Off(LongRunRate):
    """Plain decoding."""

    kind = PlannerKind.OFF
    choice = Choice.OFF
    wants_drafts = False
    awaited = 0

    def plan(self, candidates: list[Candidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan no row."""
        return RowPlan([0] * len(candidates), -self.rate * costs.item(0))
