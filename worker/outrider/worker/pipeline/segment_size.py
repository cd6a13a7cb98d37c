"""Size of segments, and how many are under way at once, from measured times of stages and links.

Pure arithmetic. Leaves which rows a segment holds to `segment_builder`, measuring and waiting to
those who have a clock.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

BUSY = 0.9
"""Share of the time for which the slowest part is at work. To reach 1, one more segment would be
under way, and what it queues for delays every choice (simulated: 7 to 19 % fewer tokens)."""

FILLS = 0.05
"""A row that is reached with this probability, on average, fills segments."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Limits of the leader."""

    rows: int
    """Most roots and node rows of one segment."""
    in_flight: int
    """Segments with live rows that are under way at once."""
    prompt_rows: int
    """Most rows of prompts beside them."""
    most_rows: int = 0
    """Most of all, with nodes of the text that pay; no fewer than `rows`."""
    pays: float = math.inf
    """Least probability with which a walk reaches a node of the text whose row pays by itself."""


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """Measured seconds of a pipeline's parts; entry i is for i + 1 rows."""

    stages: Seconds
    """Seconds to compute a segment, float64[stages, most rows]."""
    links: Seconds
    """Seconds for which a segment occupies each link, that to the first stage and that back to the
    leader among them, float64[links, most rows]."""
    delay: float = 0.0
    """Seconds that a record is on its way besides, over all links together."""

    @property
    def slowest(self) -> Seconds:
        """float64[most rows] between two segments, where none waits for another: a stage that
        computes one while its link carries the one before is as slow as the slower of them."""
        slowest: Seconds = np.concatenate([self.stages, self.links]).max(axis=0)
        return slowest

    @property
    def round_trip(self) -> Seconds:
        """float64[most rows] from the leader through all stages and back."""
        total: Seconds = self.stages.sum(axis=0) + self.links.sum(axis=0) + self.delay
        return total

    def seconds_each(self, segments: int) -> Seconds:
        """float64[most rows] that each of so many segments takes of a round trip: what is under way
        together is back together, or as soon as the slowest part lets it."""
        each: Seconds = np.maximum(self.round_trip, segments * self.slowest) / segments
        return each


def plan_segments(
    times: PipelineTimes, reach: Seconds, prompt_rows: int | None = None
) -> SegmentPlan:
    """Plan segments for trees like those of the sequences that run.

    `reach` float64[rows that could leave]: the probability that a walk reaches each, falling: 1 for
    every root, then those of all nodes. As many segments are under way as keep the slowest part
    busy for a whole round trip, or one fewer: what fills the last gap is sent before the choice
    that would have told which rows to send. Of all sizes the one is taken with which a round trip
    is expected to commit most tokens a second: more rows take longer, and each further one is less
    likely reached. `prompt_rows`: None for as many as a measured segment may have.

    What trees are like on average says nothing of text, which is copied for a while and then is
    not. A node of it pays where it is likelier than the tokens that the time of its row would bring
    at the rate of the plan; never where that time is not known.
    """
    counts = np.arange(1, len(times.slowest) + 1)
    busy = np.ceil(BUSY * times.round_trip / times.slowest).astype(np.int64)
    in_flight = np.stack([busy, np.maximum(1, busy - 1)])
    tokens = np.cumsum(reach)[np.minimum(counts * in_flight, len(reach)) - 1]
    seconds = np.maximum(times.round_trip, in_flight * times.slowest)
    fewer, best = np.unravel_index(int(np.argmax(tokens / seconds)), tokens.shape)
    most = len(counts) if prompt_rows is None else prompt_rows
    rows, segments = int(best) + 1, int(in_flight[fewer, best])
    pays = math.inf
    if len(counts) > 1:
        filled = min(segments, math.ceil(np.count_nonzero(reach >= FILLS) / rows))
        each = times.seconds_each(filled)
        pays = float(tokens[fewer, best] / filled / each[best]) * float(each[-1] - each[0])
        pays /= len(counts) - 1
    return SegmentPlan(rows, segments, most, len(counts), pays)


class Pace:
    """When the next segment is due: when the slowest part has finished the one before.

    What waits in a queue was chosen too early: choices and growth that come meanwhile would have
    chosen better, after a fall-out above all, when a whole pipeline is free at once and the draft
    has grown a few nodes.
    """

    def __init__(self, times: PipelineTimes) -> None:
        self.times = times
        """May be replaced at any time."""
        self.due = float("-inf")
        """Time at which the next segment may leave, by the clock of `sent`."""

    def sent(self, now: float, rows: int) -> None:
        """Note that a segment of `rows` >= 1 rows leaves at `now`, in seconds."""
        slowest = self.times.slowest
        between = float(slowest[min(rows, len(slowest)) - 1])
        self.due = max(self.due, now) + between
