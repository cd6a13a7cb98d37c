"""Control of a pipelined target's drafts.

Its leader waits for no growth, so that of all that sessions see only the error scale is learned,
from commits.
"""

from dataclasses import dataclass, field
from typing import Any

from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.target.draft_switch import DraftSwitch


@dataclass(slots=True)
class PipelinedDraftControl(DraftSwitch):
    """Whether drafts should grow, and how sure they may be of themselves."""

    scale: ErrorScale = field(default_factory=ErrorScale)

    def saw_latency(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_period(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn nothing: nobody waits."""
