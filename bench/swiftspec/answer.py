"""Answers of the sides of `bench.swiftspec`: tokens, costs, and the passes of both engines."""

from dataclasses import dataclass

from outrider.contract.state import TimelineSpan

COLOCATED, MIRRORED, NO_REUSE, LOCK_STEP = "Colocated", "mirrored", "no reuse", "lock step"
PARALLEL = (NO_REUSE, LOCK_STEP, MIRRORED)
"""Sides whose draft is a process of its own."""
ALL_PARALLEL = "parallel"
"""Name of all parallel sides together, as one target's process has them."""
PLAIN = "plain"
"""The colocated side's target, without its draft."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one side, from its first token to its last."""

    token_ids: tuple[int, ...]
    tokens: int
    """Tokens without the first one, which is the prompt's."""
    passes: int
    """Passes of the target."""
    began: float
    ended: float
    commits: int
    fall_ins: int
    """Commits whose new root was in the target's copy of the tree."""
    target: tuple[TimelineSpan, ...]
    draft: tuple[TimelineSpan, ...] = ()
    draft_commits: int = 0
    draft_fall_ins: int = 0
    """As the draft's own tree has it; 0 of 0 where nobody counted."""
    recomputed: int = 0
    """Rows of the draft whose KV was there and was computed again."""
    messages: int = 0
    """Both ways."""
    bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds
