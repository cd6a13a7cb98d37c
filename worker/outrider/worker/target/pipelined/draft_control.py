"""Control of a pipelined target's drafts.

Its leader waits for no growth, so that of all that sessions see only the error scale is learned,
from commits.
"""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.planning import PlannerKind
from outrider.contract.settings import WHOLE_PASSES, PolicySettings
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.target.draft_switch import DraftSwitch

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PipelinedDraftControl(DraftSwitch):
    """Whether drafts should grow, and how sure they may be of themselves."""

    scale: ErrorScale = field(default_factory=ErrorScale)
    settled_at: float = 0.0
    """When results came last, or the last time without any request ended."""
    _ignored_until: float = 0.0
    """Until then, results are of rows that left before the switch moved."""

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy; with a planner of whole passes, as if it named goodput.

        While a service that gets such a planner is rolled out from several stages to one, old pods
        are sent its policy, too: they go on drafting, under the switch.
        """
        if policy.planner in WHOLE_PASSES:
            logger.warning("planner %s plans whole passes: goodput instead", policy.planner)
            policy = dataclasses.replace(policy, planner=PlannerKind.GOODPUT)
        DraftSwitch.set_policy(self, policy, now)

    def count(self, plain: float, drafted: bool, round_trip: float, now: float) -> float:
        """Learn from results; return the seconds since those before.

        `plain`: seconds of plain decoding for the tokens that they committed, by measured times;
        `drafted`: whether they say something of drafting or of a rest; `round_trip`: seconds for
        which results of rows that have left still come.
        """
        spent, self.settled_at = now - self.settled_at, now
        state = self.switch.state
        if now >= self._ignored_until:
            if drafted:
                self.switch.observe(now, plain, spent)
            else:
                self.switch.saw_plain(plain, spent)
        if self.switch.state is not state:
            self._ignored_until = now + round_trip
        return spent

    def saw_latency(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_period(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn nothing: nobody waits."""
