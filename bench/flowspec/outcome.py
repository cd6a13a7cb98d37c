"""What one side did with one text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Span(NamedTuple):
    """One segment in one stage."""

    stage: int
    begin: float
    """Seconds, by a clock that all stages share."""
    end: float
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Decoding of one answer, from the commit of its first token on."""

    text: NDArray[np.int32]
    """Token ids of the answer: int32[tokens]."""
    tokens: int
    """Tokens committed after the first commit."""
    seconds: float
    commits: int
    """Walks that committed them."""
    bytes: int
    """On all links, from the first commit on."""
    spans: Sequence[Span]
    stages: int
    began: float
    """Time of the first commit."""
    note: str = ""
    """What was chosen for this side: sizes, depths."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens

    @property
    def rows_per_token(self) -> float:
        """Rows that stages computed, on average over the stages."""
        return sum(s.rows for s in self.spans if s.begin >= self.began) / (
            self.stages * self.tokens
        )

    def busy_seconds(self, stage: int) -> float:
        """Return how long a stage computed."""
        end = self.began + self.seconds
        own = (s for s in self.spans if s.stage == stage)
        return sum(max(0.0, min(s.end, end) - max(s.begin, self.began)) for s in own)

    @property
    def busy(self) -> float:
        """Share of the time for which stages computed, on average."""
        total = sum(self.busy_seconds(stage) for stage in range(self.stages))
        return total / (self.stages * self.seconds)
