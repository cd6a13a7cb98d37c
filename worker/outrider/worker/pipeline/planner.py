"""Planner of a pipelined target: segments and prompts by measured times of stages and links.

Times come from the visits of segments that are back; clocks are the stages' and the caller's, which
need not agree. Leaves the arithmetic of segments to `segment_size`, that of prompts to
`target.prefill`.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from outrider.worker.pipeline.records import ARRIVED, BEGAN, ENDED, ROWS, Results, Visits
from outrider.worker.pipeline.segment_builder import first_come
from outrider.worker.pipeline.segment_size import (
    Pace,
    PipelineTimes,
    Seconds,
    SegmentPlan,
    plan_segments,
)
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.target.prefill import Prompt, fair_shares
from outrider.worker.tree.mirror import DRAFT

MOST_ROWS = 32
"""Roots and nodes of one segment, at most."""
PLAN_SECONDS = 0.25
"""Shortest time between two plans."""
TREE = 64
"""Nodes of a tree whose reach is remembered."""
NOTHING_MEASURED: Seconds = np.zeros(0)
TREE_MEMORY = 0.95
"""Weight of the past in the mean of the trees' reach."""
MEMORY = 0.9
"""Weight of the past in the running mean of a stage's seconds for so many rows."""
STALL = 2.0
"""Times what is expected: as more than that no time counts. The pace follows the slowest stage, so
that one pass during which a machine did something else would hold back all segments for long (found
by `bench.flowspec --real` on a busy machine, where the pace cost tokens). A stage that is ten times
slower from now on is followed within 25 segments."""
DOWN, UP = 0.5, 0.02
"""Share by which the links' seconds follow a shorter time and a longer one: they are to be those of
a segment that waited for no other on its way."""
ROW_SHARE = 0.1
"""Cost of each further row, as a share of the seconds for the most rows that were seen."""


class PipelinePlanner:
    """Plans the segments of one pipelined target."""

    def __init__(self, first: SegmentPlan, stages: int) -> None:
        """`first`: the plan before anything is measured."""
        self.plan = first
        self.stages = stages
        self._capacity = first.rows + first.prompt_rows
        self._measured = MeasuredTimes(stages)
        self._times: PipelineTimes | None = None
        self._pace: Pace | None = None
        self._tree: Seconds = np.zeros(TREE)
        """Mean reach of the likeliest nodes of a tree, falling."""
        self._planned_at = 0.0

    def saw_results(self, results: Results, sent_at: float) -> None:
        """Learn from the results of a segment that was sent at `sent_at`."""
        self._measured.learn(results.arrived - sent_at, results.visits)

    def saw_tree(self, sequence: PipelinedSequence) -> None:
        """Learn what drafts' trees are like, when a segment leaves with rows of one.

        After a commit many have just lost their nodes: then segments would be planned too small.
        """
        reach, of_draft = np.zeros(TREE), sequence.sources & 1 << DRAFT
        if len(sequence.mirror) and of_draft:
            found = sequence.calibration.reach(sequence.mirror, of_draft)
            found = np.sort(found)[::-1][:TREE]
            reach[: len(found)] = found
        self._tree = TREE_MEMORY * self._tree + (1 - TREE_MEMORY) * reach

    def replan(self, sequences: int, most: int, now: float) -> SegmentPlan:
        """Return the plan for so many sequences that decode, in segments of at most `most` roots
        and nodes; a new one now and then."""
        if now - self._planned_at < PLAN_SECONDS:
            return self.plan
        times = self._measured.times(self._capacity)
        if times is not None:
            self._planned_at, self._times = now, times
            self._pace = self._pace or Pace(times)
            self._pace.times = times
            most = min(most, MOST_ROWS, self._capacity - 1)
            brief = PipelineTimes(times.stages[:, :most], times.links[:, :most], times.delay)
            reach = np.repeat(np.concatenate([[1.0], self._tree]), max(1, sequences))
            self.plan = plan_segments(brief, reach, self._capacity - most)
        return self.plan

    def plain_seconds(self, sequences: int) -> float:
        """Return the seconds that a token takes without drafts, where so many sequences decode; 0
        before anything is measured."""
        if self._times is None or sequences == 0:
            return 0.0
        _, _, seconds = _plain_decoding(self._times, sequences)
        return seconds / sequences

    def row_costs(self, sequences: int) -> Seconds:
        """Return [k + 1] seconds of a segment of plain decoding with 0, 1, … k node rows beside its
        roots, where so many sequences decode; empty before anything is measured."""
        if self._times is None or sequences == 0:
            return NOTHING_MEASURED
        rows, segments, _ = _plain_decoding(self._times, sequences)
        return self._times.seconds_each(segments)[rows - 1 :]

    @property
    def round_trip(self) -> float:
        """Seconds of a segment of one row, there and back; 0 before anything is measured."""
        return 0.0 if self._times is None else float(self._times.round_trip[0])

    @property
    def due(self) -> float:
        """Time at which the next segment may leave; none is held before anything is measured."""
        return -math.inf if self._pace is None else self._pace.due

    def sent(self, rows: int, now: float) -> None:
        """Note that a segment leaves."""
        if self._pace is not None:
            self._pace.sent(now, rows)

    def begin(self, capacity: int) -> SegmentPlan:
        """Begin with stages that take segments of so many rows; return the first plan for them."""
        self._capacity = capacity
        if self._times is not None:
            self._times = self._measured.times(capacity)
        self.restart()
        rows, every = (min(n, capacity - 1) for n in (self.plan.rows, self.plan.most_rows))
        prompt_rows = min(self.plan.prompt_rows, capacity - max(rows, every))
        self.plan = dataclasses.replace(
            self.plan, rows=rows, most_rows=every, prompt_rows=prompt_rows
        )
        return self.plan

    def restart(self) -> None:
        """Begin with stages that compute nothing."""
        self._pace = None if self._times is None else Pace(self._times)

    def share_prompts(self, sequences: Sequence[PipelinedSequence], most: int) -> list[int]:
        """Share out prompt rows as any target does: the shortest rest first, in segments that
        neither streams nor newcomers wait for too long."""
        prompting = [one for one in sequences if one.unsent_prompt]
        if not prompting or self._times is None:
            return first_come(sequences, most)
        prompts = [Prompt(one.unsent_prompt, one.kv.sent, one.submit.priority) for one in prompting]
        most = min(most, sum(prompt.rest for prompt in prompts))
        beside = len(prompting) < len(sequences)
        first, last = (self.plan.rows - 1, self.plan.rows + most) if beside else (0, most)
        rows = fair_shares(prompts, self._times.slowest[first:last], beside)
        given = dict(zip(map(id, prompting), rows, strict=True))
        return [given.get(id(sequence), 0) for sequence in sequences]


def _plain_decoding(times: PipelineTimes, sequences: int) -> tuple[int, int, float]:
    """Return rows of a segment, segments under way, and seconds of a token of every sequence, where
    plain decoding is fastest."""
    rows = np.arange(1, min(sequences, len(times.slowest)) + 1)
    segments = -(-sequences // rows)
    seconds = np.maximum(times.round_trip[rows - 1], segments * times.slowest[rows - 1])
    best = int(seconds.argmin())
    return int(rows[best]), int(segments[best]), float(seconds[best])


class MeasuredTimes:
    """Times of one pipeline, by rows."""

    def __init__(self, stages: int) -> None:
        self._stages: list[dict[int, float]] = [{} for _ in range(stages)]
        """Seconds by rows, of each stage."""
        self._links: dict[int, float] = {}
        """Seconds by rows that a segment is under way, stages left out."""

    def learn(self, seconds: float, visits: Visits) -> None:
        """Learn from a segment that was under way for so many seconds; ignore one without rows."""
        if len(visits) != len(self._stages) or visits[:, ROWS].min() < 1:
            return
        rows = visits[:, ROWS].astype(np.int64).tolist()
        spent = (visits[:, ENDED] - visits[:, BEGAN]).tolist()
        for known, count, each in zip(self._stages, rows, spent, strict=True):
            counted = min(each, STALL * expected(known, count, each))
            known[count] = MEMORY * known.get(count, counted) + (1 - MEMORY) * counted
        links = max(0.0, seconds - float((visits[:, ENDED] - visits[:, ARRIVED]).sum()))
        known_links = self._links.get(rows[0], links)
        share = DOWN if links < known_links else UP
        self._links[rows[0]] = known_links + share * (links - known_links)

    def times(self, most: int) -> PipelineTimes | None:
        """Return the times of 1 to `most` rows; None before anything is known.

        What links take for no row at all is a delay: it occupies no link.
        """
        if not self._links:
            return None
        stages = np.stack([curve(known, most) for known in self._stages])
        delay, each = line(self._links)
        links = len(self._stages) - 1
        occupied = each * np.arange(1, most + 1) / max(1, links)
        return PipelineTimes(stages, np.tile(occupied, (max(1, links), 1)), delay)


def expected(known: dict[int, float], count: int, otherwise: float) -> float:
    """Return the seconds that so many rows should take, `otherwise` where nothing is known."""
    if count in known or not known:
        return known.get(count, otherwise)
    return float(curve(known, count)[-1])


def curve(known: dict[int, float], most: int) -> Seconds:
    """Return seconds of 1 to `most` rows, never falling, through what is known of some of them."""
    counts = sorted(known)
    seconds = np.maximum.accumulate([known[count] for count in counts])
    wanted = np.arange(1, most + 1)
    beyond = 1 + ROW_SHARE * np.maximum(0, wanted - counts[-1])
    found: Seconds = np.interp(wanted, counts, seconds) * beyond
    return found


def line(known: dict[int, float]) -> tuple[float, float]:
    """Return the seconds for no row and for each further one; neither is below 0."""
    counts, seconds = np.array(list(known), np.float64), np.array(list(known.values()))
    if len(known) == 1:
        return float(seconds[0]), 0.0
    slope = max(0.0, float(np.polyfit(counts, seconds, 1)[0]))
    return max(0.0, float((seconds - slope * counts).mean())), slope
