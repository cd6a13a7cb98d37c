"""Log of a leader's segments: when each was where, and what became of its rows.

Keeps the last ones, for pictures, and totals of all, for metrics. Times are those that the caller
reads, and those of stages, brought to the leader's clock.

Stages of one machine share a clock. Where they do not, nothing tells how long each link took, only
how long all took together: of the fastest segment each link is taken to have taken the same, and
what a clock differs by follows from that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.state import SegmentTotals, StageTotals, TimelineSpan
from outrider.worker.messages import MAX_TIMELINE_SPANS, StageVisit
from outrider.worker.pipeline.records import (
    ARRIVED,
    BEGAN,
    ENDED,
    NO_VISITS,
    Results,
    Segment,
    Visits,
)
from outrider.worker.pipeline.sequence import SentRow

FORGET_SECONDS = 10.0
"""Age at which the fastest segment is forgotten: clocks drift, some ms a minute at worst."""

Offsets = NDArray[np.float64]


class RequestRows(NamedTuple):
    """Rows of a traced request in a segment."""

    request: int
    first_row: int
    rows: int


@dataclass(slots=True, eq=False)
class LoggedSegment:
    """One segment, from its sending on."""

    number: int
    sent: float
    rows: int
    prompt_rows: int
    committed_rows: int
    """Roots count at once."""
    pruned_rows: int = 0
    traced: tuple[RequestRows, ...] = ()
    visits: Visits = field(default_factory=NO_VISITS.copy)
    """Visits by the leader's clock; none before it is back."""
    back: float = 0.0

    @property
    def stage_visits(self) -> tuple[StageVisit, ...]:
        """The visits as plain data."""
        return tuple(StageVisit(int(rows), *times) for rows, *times in self.visits.tolist())

    def spans(self) -> Iterator[TimelineSpan]:
        """Yield a span for each stage that computed rows of it."""
        for stage, visit in enumerate(self.stage_visits):
            if visit.rows:
                dropped = self.rows - visit.rows
                yield TimelineSpan(
                    lane=f"stage {stage}",
                    number=self.number,
                    came=visit.came,
                    began=visit.began,
                    ended=visit.ended,
                    rows=visit.rows,
                    prompt_rows=self.prompt_rows,
                    committed_rows=self.committed_rows,
                    pruned_rows=max(0, self.pruned_rows - dropped),
                )


class SegmentLog:
    """The segments of one pipelined target."""

    def __init__(self, stages: int) -> None:
        self.totals = SegmentTotals()
        self.stages = [StageTotals() for _ in range(stages)]
        self._clocks = StageClocks()
        self._known: dict[int, LoggedSegment] = {}
        """The last ones by number, in the order in which they left."""
        self._most = MAX_TIMELINE_SPANS // stages

    def sent(self, segment: Segment, traced: tuple[RequestRows, ...], now: float) -> None:
        """Log a segment that leaves."""
        committed = ~segment.ancestors.any(1)
        roots = int((committed & segment.sample).sum())
        prompt_rows = int(committed.sum()) - roots
        if len(self._known) == self._most:
            del self._known[next(iter(self._known))]
        self._known[segment.number] = LoggedSegment(
            segment.number, now, segment.count, prompt_rows, roots, traced=traced
        )
        self.totals.prompt_rows += prompt_rows
        self.totals.committed_rows += roots

    def returned(self, results: Results, now: float) -> LoggedSegment | None:
        """Log the results of a segment; return it, or None where they are not its first."""
        logged = self._known.get(results.segment)
        if logged is None or len(results.visits) != len(self.stages):
            return None
        logged.back = now
        logged.visits = self._clocks.aligned(results.visits, logged.sent, now)
        self.totals.segments += 1
        self.totals.segment_seconds += now - logged.sent
        left = logged.sent
        for total, visit in zip(self.stages, logged.stage_visits, strict=True):
            add_visit(total, visit, left)
            left = visit.ended
        return logged

    def decided(self, committed: Iterable[SentRow], died: Iterable[SentRow]) -> None:
        """Log what became of node rows."""
        for row in committed:
            self.totals.committed_rows += 1
            if (logged := self._known.get(row.segment)) is not None:
                logged.committed_rows += 1
        for row in died:
            self.totals.pruned_rows += 1
            if (logged := self._known.get(row.segment)) is not None:
                logged.pruned_rows += 1

    def lose_group(self) -> None:
        """Note that the stages forget all: other ones may have other clocks."""
        self._clocks = StageClocks()

    def spans(self) -> tuple[TimelineSpan, ...]:
        """Return what the stages did to the last segments that are back."""
        found = [span for logged in self._known.values() for span in logged.spans()]
        return tuple(sorted(found, key=lambda span: span.lane))


def add_visit(total: StageTotals, visit: StageVisit, left: float) -> None:
    """Add a visit to a stage's totals; the segment had left the party before at `left`.

    One without rows left counts nowhere: times are divided by the segments that are counted.
    """
    if visit.rows == 0:
        return
    total.segments += 1
    total.rows += visit.rows
    total.busy_seconds += visit.ended - visit.began
    total.queue_seconds += visit.began - visit.came
    total.row_seconds += visit.rows * (visit.ended - visit.came)
    total.link_seconds += max(0.0, visit.came - left)


class StageClocks:
    """What each stage's clock is ahead of the leader's; learned from segments that are back."""

    def __init__(self) -> None:
        self._offsets: Offsets | None = None
        """float64[stages]; None while all clocks agree."""
        self._fastest = np.inf
        """Seconds on all links, of the segment that the offsets are from."""
        self._learned_at = -np.inf

    def aligned(self, visits: Visits, sent: float, back: float) -> Visits:
        """Return the visits of a segment by the leader's clock, on which it left and came back."""
        if self._offsets is None and agree(visits, sent, back):
            return visits
        links = links_seconds(visits, sent, back)
        if links <= self._fastest or back - self._learned_at > FORGET_SECONDS:
            self._offsets = offsets(visits, sent, back)
            self._fastest, self._learned_at = links, back
        found = visits.copy()
        found[:, [ARRIVED, BEGAN, ENDED]] -= self._offsets[:, None]  # type: ignore[index]
        return found


def agree(visits: Visits, sent: float, back: float) -> bool:
    """True if no stage got a segment before the one before it had done with it."""
    left = np.concatenate([[sent], visits[:, ENDED]])
    came = np.concatenate([visits[:, ARRIVED], [back]])
    return bool((came >= left).all())


def links_seconds(visits: Visits, sent: float, back: float) -> float:
    """Return the seconds of a segment's way that it was in no stage."""
    return back - sent - float((visits[:, ENDED] - visits[:, ARRIVED]).sum())


def offsets(visits: Visits, sent: float, back: float) -> Offsets:
    """Return float64[stages], by how much each clock is ahead if all links took the same time."""
    inside = visits[:, ENDED] - visits[:, ARRIVED]
    each = links_seconds(visits, sent, back) / (len(visits) + 1)
    before = np.concatenate([[0.0], np.cumsum(inside)[:-1]])
    came = sent + each * np.arange(1, len(visits) + 1) + before
    ahead: Offsets = visits[:, ARRIVED] - came
    return ahead
