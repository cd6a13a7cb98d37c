"""Control of a pipelined target's sources of draft tokens: its drafts, and its text.

Its leader waits for no growth, so that of all that sessions see only the error scale is learned,
from commits.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.speculation.local_sources import LocalSources, SourceRows
from outrider.worker.target.draft_switch import DraftSwitch
from outrider.worker.tree.mirror import DRAFT

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
    """Whether drafts should grow, whether texts are searched, and how sure drafts may be."""

    scale: ErrorScale = field(default_factory=ErrorScale)
    local: LocalSources = field(default_factory=LocalSources)
    settled_at: float = 0.0
    """When results came last, or the last time without any request ended."""
    _ignored_until: float = 0.0
    """Until then, results are of rows that left before the switch moved."""

    def __post_init__(self) -> None:
        self.policy = _own(self.policy)
        self.local.decide(self.policy, 0.0)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy, without the sources that such a target has not."""
        policy = _own(policy)
        DraftSwitch.set_policy(self, policy, now)
        self.local.decide(policy, now)

    def sources(self, submit: Submit) -> int:
        """Return the sources whose nodes may get rows for a request, a bit each."""
        if not submit.speculate:
            return 0
        return self.local.on | self.wants_drafts(submit) << DRAFT

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
        whole = spent
        if step is not None:
            rows, costs, each = step
            self.local.observe(rows, costs, each, self.switch.scale, spent, now)
            plain, spent = plain - self.local.lent.plain, spent - self.local.lent.spent
        state = self.switch.state
        if now >= self._ignored_until:
            if drafted:
                self.switch.observe(now, plain, spent)
            else:
                self.switch.saw_plain(plain, spent)
        if self.switch.state is not state:
            self._ignored_until = now + round_trip
        return whole

    def saw_latency(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_period(self, seconds: float) -> None:
        """Learn nothing: nobody waits."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn nothing: nobody waits."""


def _own(policy: PolicySettings) -> PolicySettings:
    """Return a policy without the sources that a target of several stages has not."""
    return dataclasses.replace(policy, sources=tuple(s for s in policy.sources if s in OWN_SOURCES))
