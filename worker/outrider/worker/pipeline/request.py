"""One request of a pipelined target: its answer so far, and its sequence of the leader's."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.contract.sources import SOURCES
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.target.answer import Answer
from outrider.worker.tree.mirror import Mirror


@dataclass(slots=True, eq=False)
class PipelinedRequest(Answer):
    """One request, as drafts and clients see it."""

    sequence: PipelinedSequence
    detach: Callable[[int], None]
    """Tells the leader that the draft of a request, by its number, is lost."""
    generated: int = 0
    """Tokens of the answer so far."""
    counted_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Node rows that have been counted, by source."""
    traced_segments: int = 0
    """Segments with rows of it that are traced."""
    text: TextSearch | None = None
    """None where the text is no source of draft tokens."""

    @property
    def mirror(self) -> Mirror:
        return self.sequence.mirror

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self.sequence.length

    @property
    def position(self) -> int:
        """Position of the root."""
        return self.sequence.position

    @property
    def needs_prefill(self) -> bool:
        """True if tokens of its prompt are still to be sent to the stages, as of one that waits
        for a place in their KV, or for stages that are gone."""
        return self.sequence.placed is None or self.sequence.unsent_prompt > 0

    def committed(self) -> NDArray[np.int32]:
        """Return a copy of all committed tokens."""
        return self.sequence.committed.copy()

    def drop_session(self) -> None:
        """Forget the session, and the ids of its nodes; rows of nodes that die with it are dead."""
        self.session = None
        self.detach(self.submit.request)

    def start(self, cached: int, now: float) -> None:
        """Note that it runs, with KV of `cached` tokens that were there."""
        self.started = True
        self.usage.cached_prompt_tokens = cached
        self.timing.queued_seconds = now - self.submit.arrived
        self.committed_at = now
