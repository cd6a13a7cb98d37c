"""Control of a pipelined target's sources of draft tokens: its drafts, and its text.

Its leader waits for no growth, so that of all that sessions see only the error scale is learned,
from commits.
"""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.target.draft_switch import DraftSwitch

OWN_SOURCES = (SourceKind.DRAFT, SourceKind.SUFFIX)
"""Sources of a target of several stages: it keeps no index of finished answers."""


class SourceStep(NamedTuple):
    """What local sources did to some results."""

    rows: SourceRows
    costs: Seconds
    """[k + 1] seconds of a segment with 0, 1, … k node rows."""
    each: float
    """Seconds of plain decoding of a token."""


@dataclass(slots=True)
class PipelinedDraftControl(DraftSwitch):
    """Sources judged by results, which may be of rows from before the switch moved."""

    settled_at: float = 0.0
    """When results came last, or the last time without any request ended."""
    _ignored_until: float = 0.0
    """Time until which results are of rows that left before the switch moved."""

    def __post_init__(self) -> None:
        self.policy = _own(self.policy)
        DraftSwitch.__post_init__(self)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy, without the sources that such a target has not."""
        DraftSwitch.set_policy(self, _own(policy), now)

    def count(
        self,
        plain: float,
        drafted: bool,
        round_trip: float,
        now: float,
        step: SourceStep | None = None,
    ) -> float:
        """Learn from results; return the seconds since those before.

        `plain`: seconds of plain decoding for the tokens that they committed, by measured times;
        `drafted`: whether they say something of drafting or of a rest; `round_trip`: seconds for
        which results of rows that have left still come; `step`: None without local sources.
        """
        spent, self.settled_at = now - self.settled_at, now
        if step is not None:
            rows, costs, each = step
            self.local.observe(rows, costs, each, self.account.present.scale, spent)
        state = self.switch.state
        if now >= self._ignored_until:
            if drafted:
                self.saw_drafting(plain, spent, now)
            else:
                self.saw_plain(plain, spent, now)
        if self.switch.state is not state:
            self._ignored_until = now + round_trip
        return spent


def _own(policy: PolicySettings) -> PolicySettings:
    """Return a policy without the sources that a target of several stages has not."""
    return dataclasses.replace(policy, sources=tuple(s for s in policy.sources if s in OWN_SOURCES))
