"""Pace of a leader's segments: one leaves when the slowest part has finished the one before.

Pure arithmetic on times that the caller reads. Leaves how many may be under way to `segment_size`,
and waiting until a segment is due to whoever calls the leader.

What waits in a queue was chosen too early: choices and growth that come meanwhile would have chosen
better, after a fall-out above all, when a whole pipeline is free at once and the draft has grown a
few nodes.
"""

from outrider.worker.pipeline.segment_size import PipelineTimes


class Pace:
    """When the next segment is due."""

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
