"""What stages and links took in a run of real processes: the setting that a simulation needs.

All clocks are one: processes of one machine share CLOCK_MONOTONIC, so that the way from a stage to
the next one is a difference, too. Pure: leaves taking times to stages and leader.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench.flow.setting import MAX_ROWS, Links, Seconds, Setting
from outrider.worker.pipeline.records import ARRIVED, BEGAN, ENDED, ROWS, Visits

Middle = Callable[[Any], Any]
"""Median or mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Trip:
    """One segment, there and back; seconds of the machine's clock."""

    sent: float
    visits: Visits
    arrived: float


@dataclass(slots=True)
class Recording:
    """Trips of one pipeline, of all sides together."""

    trips: list[Trip] = field(default_factory=list)

    def seconds(self, stages: int, middle: Middle = np.median) -> Seconds:
        """Return the seconds of each stage by rows, float64[stages, MAX_ROWS]: straight lines
        between rows that were seen; beyond, as they rise from the fewest to the most."""
        return np.stack([self._stage(number, middle) for number in range(stages)])

    def links(self, stated: Links, middle: Middle = np.median) -> Links:
        """Return links with what gRPC, its two processes and the relay add to a delay."""
        ways = np.concatenate([_ways(trip) for trip in self._whole()])
        return replace(stated, delay=float(middle(ways)))

    def host(self) -> float:
        """Return the median seconds from results to the next segment that they let go, where one
        segment at a time is under way."""
        pairs = zip(self.trips[:-1], self.trips[1:], strict=True)
        return float(np.median([later.sent - trip.arrived for trip, later in pairs]))

    def calibrated(self, setting: Setting, plain: "Recording") -> Setting:
        """Return a setting with times that were recorded; `plain`: of plain decoding."""
        return replace(
            setting,
            stages=self.seconds(setting.count),
            links=plain.links(setting.links),
            host=max(0.0, plain.host()),
        )

    def with_means(self, measured: Setting) -> Setting:
        """Return a setting with means instead of medians: what stalled while it was recorded, too,
        takes its share."""
        seconds = self.seconds(measured.count, np.mean)
        return replace(measured, stages=seconds, links=self.links(measured.links, np.mean))

    def overrun(self, setting: Setting) -> float:
        """Return the share of passes that took a tenth longer than stated."""
        late = [
            took > 1.1 * setting.stage(number, rows)
            for number in range(setting.count)
            for rows, took in self._passes(number)
        ]
        return float(np.mean(late))

    def _whole(self) -> Sequence[Trip]:
        """Return the trips of segments whose rows no stage dropped."""
        return [trip for trip in self.trips if trip.visits[:, ROWS].min() > 0]

    def _passes(self, stage: int) -> list[tuple[int, float]]:
        rows = [trip.visits[stage] for trip in self.trips]
        return [(int(v[ROWS]), float(v[ENDED] - v[BEGAN])) for v in rows if v[ROWS] > 0]

    def _stage(self, stage: int, middle: Middle) -> Seconds:
        by_rows: defaultdict[int, list[float]] = defaultdict(list)
        for rows, took in self._passes(stage):
            by_rows[min(rows, MAX_ROWS)].append(took)
        counts = sorted(by_rows)
        middles = np.array([middle(by_rows[count]) for count in counts])
        every = np.arange(1, MAX_ROWS + 1)
        found: Seconds = np.interp(every, counts, middles)
        if len(counts) > 1:
            rise = max(0.0, middles[-1] - middles[0])  # fewer rows may have stalled for longer
            found += rise / (counts[-1] - counts[0]) * np.maximum(0, every - counts[-1])
        return found


def _ways(trip: Trip) -> Seconds:
    """Return the seconds on each link: to the first stage, between stages, back to the leader."""
    left = np.concatenate([[trip.sent], trip.visits[:, ENDED]])
    came = np.concatenate([trip.visits[:, ARRIVED], [trip.arrived]])
    ways: Seconds = came - left
    return ways
