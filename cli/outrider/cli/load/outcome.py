"""Outcome of one request: its status, and its latencies from the times of its chunks.

Seconds are counted from the start of the run. Summing up over requests is `summary`'s.
"""

import enum
import itertools
from dataclasses import dataclass

from outrider.cli.load import percentiles
from outrider.cli.load.answer import StreamedAnswer
from outrider.cli.load.workload import Job


class Status(enum.StrEnum):
    """End of a request."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request that is over."""

    job: Job
    status: Status
    due: float
    """When it should have been sent."""
    sent: float
    """When it was sent, the first time if it was rejected and tried again."""
    ended: float
    answer: StreamedAnswer
    retries: int = 0
    problem: str = ""
    """Why it failed."""

    @property
    def ttft(self) -> float | None:
        """Seconds from sending to the first text."""
        return self.answer.chunks[0].at - self.sent if self.answer.chunks else None

    @property
    def latency(self) -> float:
        """Seconds from sending to the end of the stream."""
        return self.ended - self.sent

    @property
    def tpot(self) -> float | None:
        """Seconds for each token after the first; None for answers shorter than two tokens."""
        chunks, tokens = self.answer.chunks, self.answer.tokens
        return (chunks[-1].at - chunks[0].at) / (tokens - 1) if tokens > 1 and chunks else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between one chunk and the next."""
        chunks = self.answer.chunks
        return [b.at - a.at for a, b in itertools.pairwise(chunks)]

    @property
    def token_gaps(self) -> list[tuple[float, float]]:
        """(seconds per token, tokens) of each chunk after the first.

        Where the endpoint does not say how many tokens a chunk holds, the answer's are spread
        evenly over its chunks.
        """
        chunks = self.answer.chunks
        even = max(1.0, self.answer.tokens / len(chunks)) if chunks else 1.0
        counts = [chunk.tokens or even for chunk in chunks[1:]]
        return [(gap / n, n) for gap, n in zip(self.gaps, counts, strict=True)]

    @property
    def slowest_tokens(self) -> float | None:
        """99th percentile of this answer's inter-token latencies; None for a single chunk."""
        gaps = self.token_gaps
        return percentiles.percentile(gaps, 0.99) if gaps else None
