"""Spans of a draft's passes: what a timeline shows of each."""

from collections.abc import Iterable
from typing import Any

from outrider.contract.state import TimelineSpan
from outrider.worker.draft.batch import DraftBatch

LANE = "draft"


def draft_spans(
    step: DraftBatch, output: Any, began: float, ended: float
) -> Iterable[TimelineSpan]:
    """Return the span of one pass; rows that expand no leaf are of tokens that it missed."""
    missed = sum([part.count - len(part.leaves) for part in step.parts])
    return (TimelineSpan(LANE, 0, began, began, ended, step.rows.count, prompt_rows=missed),)
