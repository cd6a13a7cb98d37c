"""Settings of the simulation: seconds of stages and draft passes, links, and sizes on the wire."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.pipeline.segment_size import PipelineTimes

Seconds = NDArray[np.float64]
MAX_ROWS = 64
"""Most rows of a segment or draft pass that has a time."""
ROW_BYTES = 48
"""About what a row takes on the wire beside its hidden vector: numbers, slot, token, mask."""
FRAME_BYTES = 40
"""About what a segment takes besides."""


def line(base: float, by_row: float) -> Seconds:
    """Return seconds of 1, 2, … rows: float64[MAX_ROWS]."""
    seconds: Seconds = base + by_row * np.arange(MAX_ROWS)
    return seconds


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """All links of a pipeline are alike."""

    bits_per_second: float
    delay: float
    """Seconds."""

    def __str__(self) -> str:
        return f"{self.bits_per_second / 1e6:g} Mbit/s, {self.delay * 1e3:g} ms"


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A pipeline and its draft."""

    name: str
    stages: Seconds
    """Seconds to compute a segment: float64[stages, MAX_ROWS]; entry i is for i + 1 rows."""
    draft: Seconds
    """Seconds of a draft pass: float64[MAX_ROWS]; entry i is for i + 1 rows."""
    hidden: int
    """Numbers of a hidden vector, which travels in fp16."""
    links: Links
    host: float
    """Seconds that the leader takes for a message."""
    layers: int
    """Layers of the target."""

    @property
    def count(self) -> int:
        """Stages."""
        return len(self.stages)

    def stage(self, at: int, rows: int) -> float:
        """Return seconds of a stage for a segment of so many rows."""
        return float(self.stages[at, min(rows, MAX_ROWS) - 1]) if rows else 0.0

    def draft_pass(self, rows: int) -> float:
        """Return seconds of a draft pass over so many rows."""
        return float(self.draft[min(rows, MAX_ROWS) - 1])

    def row_bytes(self, link: int) -> int:
        """Return bytes of a row on a link; the first one and the last one carry no vectors."""
        carries = 0 < link < self.count
        return ROW_BYTES + carries * 2 * self.hidden

    def times(self) -> PipelineTimes:
        """Return what segments are planned with."""
        rows = np.arange(1, MAX_ROWS + 1)
        links = [
            (FRAME_BYTES + self.row_bytes(link) * rows) * 8 / self.links.bits_per_second
            for link in range(self.count + 1)
        ]
        delay = (self.count + 1) * self.links.delay + self.host
        return PipelineTimes(self.stages, np.array(links), delay)


PAPER_LINKS = Links(150e6, 0.0)


def jetson_7b(count: int, links: Links = PAPER_LINKS) -> Setting:
    """Return FlowSpec's setting: a 7B target in fp16 on small boards, an EAGLE head as draft.

    The paper's stage times are not known here. These follow from its Chunk-PP column and its code:
    6.1 tokens a second in rounds of five segments of 16 rows over four stages of 8 layers. 8 layers
    are 3.2 GB, read in 65 ms at 50 GB/s, what a board with 60 GB/s of memory reads. A level of the
    head reads 0.4 GB and the output matrix 0.26 GB: 13 ms. Other numbers of stages share the same
    32 layers. A row more costs 1/160 of a stage's time, an assumption.

    The continuous side has this head's cost and hit rate at any depth (32 levels), although the
    head reads features of the target, which nodes ahead do not have yet; and `Language.children`
    is as sure there as at the root. That favours the continuous side.
    """
    return _board("jetson 7B", count, (4096, 32), stage=0.260 / count, level=0.013, links=links)


def jetson_13b(count: int, links: Links = PAPER_LINKS) -> Setting:
    """Return the setting of the paper's best cell: a 13B target, 1.3 tokens a second in rounds.

    That is far below what the memory's speed says of 6.3 GB a stage: the code's 4-bit weights, or
    swapping. So stages are slow beside links and draft.
    """
    return _board("jetson 13B", count, (5120, 40), stage=1.40 / count, level=0.020, links=links)


def _board(
    name: str, count: int, shape: tuple[int, int], stage: float, level: float, links: Links
) -> Setting:
    hidden, layers = shape
    stages = np.tile(line(stage, stage / 160), (count, 1))
    draft = line(level, level / 160)
    return Setting(name, stages, draft, hidden, links, host=0.5e-3, layers=layers)


def demo(count: int, links: Links = PAPER_LINKS) -> Setting:
    """Return the demo's pair, its target of 30 layers cut over one processor a stage.

    Seconds are assumed, entered by hand: 15 ms of a stage of 15 layers with one thread, and 0.9 ms
    for each further row; a draft pass 1.2 ms and 0.15 ms.
    """
    stages = np.tile(line(30e-3 / count, 1.8e-3 / count), (count, 1))
    draft = line(1.2e-3, 0.15e-3)
    return Setting("demo", stages, draft, 576, links, host=0.5e-3, layers=30)
