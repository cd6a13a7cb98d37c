"""Size of segments, and how many are under way at once, from measured times of stages and links.

Pure arithmetic. Leaves which rows a segment holds to `segment_builder`, measuring to those who have
a clock.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

NEAR_BEST = 0.9
"""Share of the best rate in rows a second at which a segment is large enough: beyond it a row more
delays what waits behind it more than it gains."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Limits of the leader."""

    rows: int
    """Most roots and node rows of one segment."""
    in_flight: int
    """Segments with live rows that are under way at once."""
    prompt_rows: int
    """Most rows of prompts beside them."""


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


def plan_segments(times: PipelineTimes, nodes: int, prompt_rows: int | None = None) -> SegmentPlan:
    """Plan segments for a tree of `nodes` live nodes, of all sequences together.

    Of the sizes that leave enough segments to keep the slowest part busy for a whole round trip,
    the smallest that comes near the best rate of rows; one row where no size leaves enough.
    `prompt_rows`: None for as many as a measured segment may have.
    """
    slowest, round_trip = times.slowest, times.round_trip
    counts = np.arange(1, len(slowest) + 1)
    in_flight = np.ceil(NEAR_BEST * round_trip / slowest).astype(np.int64)
    enough = counts * in_flight <= max(nodes, 1)
    rates = np.where(enough, counts / slowest, 0.0)
    best = int(np.argmax(rates >= NEAR_BEST * rates.max())) if enough.any() else 0
    most = len(slowest) if prompt_rows is None else prompt_rows
    return SegmentPlan(best + 1, int(in_flight[best]), most)
