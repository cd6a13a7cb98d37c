"""Spans of a target's passes: what a timeline shows of each."""

from collections.abc import Iterable
from typing import Any

from outrider.contract.state import TimelineSpan
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.scheduler import HasParts
from outrider.worker.target.stats import Stats

LANE = "target"


class TargetSpans:
    """Spans of one target's steps; call it for each, once it is settled."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._accepted_rows = 0

    def __call__(
        self, step: HasParts, output: Any, began: float, ended: float
    ) -> Iterable[TimelineSpan]:
        """Return the span of a pass, or those of a run."""
        accepted = self._stats.counters.accepted_rows - self._accepted_rows
        self._accepted_rows += accepted
        if not isinstance(step, TargetBatch):
            spans: Iterable[TimelineSpan] = output.spans()
            return spans
        rows, prompt_rows = step.rows.count, step.prefill_rows
        committed = step.decoding_count + accepted
        pruned = max(0, rows - prompt_rows - committed)  # a step that failed may have accepted some
        return (TimelineSpan(LANE, 0, began, began, ended, rows, prompt_rows, committed, pruned),)
