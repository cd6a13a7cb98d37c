"""Inputs and decision of one pass of the control loop, as plain data.

Leaves making the inputs and acting on the decision to the caller: the operator, or `outrider run`.
"""

import dataclasses
from dataclasses import dataclass

from outrider.contract.settings import PolicySettings
from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.memory import LoopMemory
from outrider.operator.control.reasons import Hold, LoopReason, PhaseChange
from outrider.operator.control.samples import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlInputs:
    """Inputs of one pass."""

    window: Window | None
    """The last whole window, the same one until the next is whole; None: not known."""
    gains: tuple[GainWindow, ...] = ()
    """The last `WINDOWS` windows with work and a linked draft."""
    subject: str = ""
    """Digest of what gain depends on: a change makes what was learned void, and a probe due."""
    starting: bool = False
    """True if there is no window only because this process has not scraped twice."""
    targets: int = 1
    """Target replicas asked for."""
    drafts_desired: int | None = None
    """Replicas asked for; None: the role does not exist yet."""
    drafts_actual: int = 0
    """Draft pods that exist, ready or not."""
    drafts_ready: int = 0
    """Draft pods that take sessions."""
    links_up: int = 0
    """Links between ready targets and ready drafts that work."""
    links_expected: int = 0
    """Links between ready targets and ready drafts in all."""
    sessions: int | None = None
    """Sessions on drafts; None: not known."""
    acknowledged: int = 0
    """The newest policy version that a quorum of ready targets follows."""
    followed_by_all: int | None = None
    """The oldest that any ready target follows; None: the same."""
    rolling_out: bool = False
    """True if pods of either role are being replaced."""
    stopped: bool = False
    """True if the drafts' rollout has failed: no replica is on its way, whatever is missing."""
    contested: bool = False
    """True if another owner writes the number of draft replicas."""
    others: str = ""
    """Digest of the rest of the policy (addresses of drafts, depth, width): a change raises the
    version."""

    def is_followed_by_all(self, version: int) -> bool:
        """True if every ready target follows a policy, or a newer one."""
        oldest = self.followed_by_all
        return (self.acknowledged if oldest is None else oldest) >= version

    @property
    def pending(self) -> bool:
        """True if draft replicas are still on their way up or down."""
        desired = self.drafts_desired
        if desired is None or self.stopped:
            return False
        return self.drafts_actual != desired or self.drafts_ready < desired

    @property
    def linked(self) -> bool:
        """True if every draft that was asked for is linked with every target."""
        return not self.pending and 0 < self.links_up == self.links_expected


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of phase or replicas: becomes an event."""

    change: PhaseChange
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of one pass; store `memory` before anything is pushed or scaled."""

    memory: LoopMemory
    """Memory for the next pass; its `version` is that of the policy."""
    draft_replicas: int | None
    """Replicas to ask for; None: leave the number alone."""
    reason: LoopReason
    """Reason of the condition SpeculationActive."""
    hold: Hold | None
    """Why another number of replicas waits."""
    sentence: str
    """The pass in one sentence, for the log."""
    transitions: tuple[Transition, ...]
    """Changes in this pass."""

    @property
    def speculate(self) -> bool:
        """True if targets are to speculate."""
        return self.memory.speculate

    @property
    def max_rows(self) -> int:
        """Ceiling of node rows of one sequence in one pass."""
        return self.memory.max_rows

    def policy(self, described: PolicySettings, drafts: tuple[str, ...]) -> PolicySettings:
        """Return the policy to push: the service's, with the decision and the drafts' addresses.

        The decision is on drafting: sources that need no draft go on without it.
        """
        local = () if self.speculate else described.local_sources
        return dataclasses.replace(
            described,
            version=self.memory.version,
            speculate=self.speculate or bool(local),
            max_rows=self.max_rows,
            drafts=tuple(dict.fromkeys(drafts)),
            sources=local or described.sources,
        )
