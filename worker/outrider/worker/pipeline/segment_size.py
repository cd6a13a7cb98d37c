"""Size of segments, and how many are under way at once, from measured times of stages and links.

Pure arithmetic. Leaves which rows a segment holds to `segment_builder`, measuring to those who have
a clock.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

BUSY = 0.9
"""Share of the time for which the slowest part is at work. To reach 1, one more segment would be
under way, and what it queues for delays every choice (decision 0019: 7 to 19 % fewer tokens)."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Limits of the leader."""

    rows: int
    """Most roots and node rows of one segment."""
    in_flight: int
    """Segments with live rows that are under way at once."""
    prompt_rows: int
    """Most rows of prompts beside them."""
    text_rows: int = 0
    """Most roots and node rows of a segment in which nodes of the text leave that pay;"""
    pays: float = math.inf
    """the least probability with which a walk reaches a node whose row pays by itself."""


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """Measured seconds of a pipeline's parts; entry i is for i + 1 rows."""

    stages: Seconds
    """float64[stages, most rows] to compute a segment."""
    links: Seconds
    """float64[links, most rows] for which a segment occupies each link, that to the first stage and
    that back to the leader among them."""
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
    not: its nodes leave where they are worth the time of their rows, up to the most measured.
    """
    counts = np.arange(1, len(times.slowest) + 1)
    busy = np.ceil(BUSY * times.round_trip / times.slowest).astype(np.int64)
    in_flight = np.stack([busy, np.maximum(1, busy - 1)])
    tokens = np.cumsum(reach)[np.minimum(counts * in_flight, len(reach)) - 1]
    seconds = np.maximum(times.round_trip, in_flight * times.slowest)
    fewer, best = np.unravel_index(int(np.argmax(tokens / seconds)), tokens.shape)
    most = len(counts) if prompt_rows is None else prompt_rows
    rate, each = tokens[fewer, best] / seconds[fewer, best], 0.0
    if len(counts) > 1:
        each = float(seconds[fewer, -1] - seconds[fewer, 0]) / (len(counts) - 1)
    return SegmentPlan(
        int(best) + 1, int(in_flight[fewer, best]), most, len(counts), float(rate) * each
    )
