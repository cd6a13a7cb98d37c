"""Times of a pipeline's stages and links, learned from the visits of segments that are back.

Pure: clocks are the caller's and the stages', which need not agree with each other. Leaves what
follows for segments to `segment_size`.
"""

import numpy as np

from outrider.worker.pipeline.records import ARRIVED, BEGAN, ENDED, ROWS, Visits
from outrider.worker.pipeline.segment_size import PipelineTimes, Seconds

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
"""Of the seconds for the most rows that were seen, what each further row is taken to cost."""


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
