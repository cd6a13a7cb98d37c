"""Stats of a pipelined target: usage of each request, and counters.

A *pass* of a sequence is a result that moved its root. Decides nothing.
"""

import logging
from dataclasses import dataclass, field

from outrider.contract.counters import Counters, new_counters
from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SOURCES
from outrider.worker.messages import Finish
from outrider.worker.pipeline.records import Segment
from outrider.worker.pipeline.request import PipelinedRequest
from outrider.worker.pipeline.walk import Committed
from outrider.worker.speculation.local_sources import NO_ROWS, Lent, SourceRows
from outrider.worker.target.stats import DraftVerdict, count_finish, sums

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PipelinedStats:
    """Counters of one pipelined target."""

    counters: Counters = field(default_factory=new_counters)
    passes_by_accepted: list[int] = field(default_factory=lambda: [0] * (MAX_DEPTH + 1))
    """Passes by how many node rows each accepted."""
    last_rows: int = 0
    """Rows of the last segment."""
    last_node_rows: int = 0
    """Node rows among them."""
    source_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Node rows by what proposed them, in the order of `SOURCES`;"""
    source_accepted: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """of them, those that were accepted."""
    _step: SourceRows = NO_ROWS
    """Of the results since `take_step`."""
    _verdict: DraftVerdict = field(default_factory=DraftVerdict)

    def count_start(self, request: PipelinedRequest) -> None:
        """Count a request that starts."""
        self.counters.prompt_tokens += request.usage.prompt_tokens
        self.counters.cached_prompt_tokens += request.usage.cached_prompt_tokens

    def count_segment(self, segment: Segment) -> None:
        """Count a segment that leaves."""
        self.last_rows, self.last_node_rows = segment.count, int(segment.ancestors.any(1).sum())
        self.counters.steps += 1
        self.counters.step_rows += segment.count

    def count_pass(
        self, request: PipelinedRequest, committed: Committed, wanted: bool, rests: bool
    ) -> None:
        """Count a result that committed tokens after the first of an answer.

        `wanted`: drafts are to grow for it; `rests`: they would, were the switch not off.
        """
        usage, counters, seen = request.usage, self.counters, committed.guesses
        rows, accepted = self._count_sources(request, committed)
        hit = seen.first >= 0 and seen.first == int(committed.tokens[0])
        usage.passes += 1
        usage.draft_rows += rows
        usage.accepted_rows += accepted
        usage.passes_with_nodes += seen.nodes > 0
        usage.first_guesses += seen.first >= 0
        usage.first_hits += hit
        counters.passes += 1
        counters.tokens += len(committed.tokens)
        counters.draft_rows += rows
        counters.accepted_rows += accepted
        self.passes_by_accepted[min(accepted, MAX_DEPTH)] += 1
        counters.drafted_passes += rows > 0
        counters.blind_passes += seen.drafted == 0 and wanted
        counters.resting_passes += rests
        counters.first_guesses += seen.first >= 0
        counters.first_hits += hit

    def _count_sources(self, request: PipelinedRequest, committed: Committed) -> tuple[int, int]:
        """Count node rows by what proposed them; return how many left, and how many were right."""
        left, before = request.sequence.source_rows, request.counted_rows
        rows = [now - then for now, then in zip(left, before, strict=True)]
        accepted = list(committed.guesses.accepted)
        request.counted_rows = list(left)
        self.source_rows = sums(self.source_rows, rows)
        self.source_accepted = sums(self.source_accepted, accepted)
        step, total = self._step, sum(rows)
        self._step = SourceRows(
            sums(step.rows, rows), sums(step.accepted, accepted), step.total + total
        )
        return total, sum(accepted)

    def take_step(self) -> SourceRows:
        """Return the node rows of the passes counted since it was last called."""
        step, self._step = self._step, NO_ROWS
        return step

    def count_lent(self, lent: Lent, scale: float) -> None:
        """Count what is none of a draft's gain; `scale`: times which plain decoding takes."""
        self.counters.local_plain_seconds += lent.plain * scale
        self.counters.local_spent_seconds += lent.spent

    def count_time(self, spent: float, plain: float) -> None:
        """Count seconds in which requests decoded, and those of plain decoding for their tokens."""
        self.counters.spent_seconds += spent
        self.counters.plain_seconds += plain

    def count_end(self, request: PipelinedRequest, finish: Finish) -> None:
        """Count a request that ended, and log it."""
        count_finish(self.counters, finish)
        usage = request.usage
        logger.info(
            "request %d: %s after %d tokens in %d passes over %d node rows, %d of them right; "
            "%.0f ms",
            request.submit.request,
            finish.value,
            usage.completion_tokens,
            usage.passes,
            usage.draft_rows,
            usage.accepted_rows,
            1e3 * request.timing.decode_seconds,
        )
        self._verdict.judge(self.counters)
