"""One pass: what it observed, decided, wanted and did, and one observation of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outrider.contract.settings import PolicySettings, Role
from outrider.operator.apply.applier import ApplyResult
from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.kinds import CONFIG_MAP, ChildKey
from outrider.operator.control.inputs import Decision
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.samples import Window
from outrider.operator.manifests.certificates import certificate_secrets
from outrider.operator.manifests.desired import (
    Desired,
    Intent,
    Platform,
    desired,
    roles,
)
from outrider.operator.manifests.replicas import replicas
from outrider.operator.naming import intent_name
from outrider.operator.observed.service import Observed
from outrider.operator.spec.conditions import ConditionType
from outrider.operator.spec.service import ServiceReader, SpeculativeService
from outrider.operator.workers.poll import WorkerPoll, policy_for

PERCENTAGES = ("gainPercent", "hitPercent")
ROUNDING = 5
"""Percentages are rounded to multiples of this, so that they are rarely written."""


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One observation; `holds` None: not known."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One pass: what it observed and decided, and afterwards what it wanted and did."""

    observed: Observed
    service: SpeculativeService
    poll: WorkerPoll
    foreign_owners: Mapping[Role, str]
    """Roles whose number of replicas has another owner, and its name."""
    decision: Decision
    window: Window | None
    """Window that the decision was based on."""
    now: float
    """Seconds since the epoch."""
    platform: Platform
    signers: Authorities | None
    """Authorities that sign the certificates of workers; None: the operator signs none."""
    reader: ServiceReader
    """Reader of the service, which knows what it left out."""
    rival: str
    """Operator that wants the service's namespace too, and is refused; empty: none."""
    admitted: tuple[str, ...] = ()
    """Privileges that the service's author was let have."""
    unasked: tuple[str, ...] = ()
    """Privileges that the service has and nobody asked its author about."""
    wanted: Desired = field(default_factory=Desired)
    result: ApplyResult = field(default_factory=ApplyResult)
    """Outcome of applying what is wanted."""
    failing: Mapping[ChildKey, str] = field(default_factory=dict)
    """Objects that could not be written in several passes, and why."""

    @property
    def inputs(self) -> tuple[object, ...]:
        """What the rest of a pass follows from, beside what it observed and the time."""
        targets = self.observed.pods_of(Role.TARGET)
        states = [self.poll.states.get(pod.uid) for pod in targets]
        return (
            self.decision.memory,
            self.decision.draft_replicas,
            self.decision.reason,
            self.foreign_owners,
            self.signers,
            self.rival,
            self.admitted,
            self.unasked,
            self.poll.problems,
            [None if one is None else (one.policy, one.links) for one in states],
            self.percentages,
        )

    @property
    def has_done_nothing(self) -> bool:
        """True if a pass found all as it was wanted, and saw nothing that changes by the clock."""
        result, decision = self.result, self.decision
        acted = result.differed or result.unapplied or decision.transitions
        return (
            not acted and decision.reason is not LoopReason.DRAFT_LOST and self.observed.is_steady
        )

    @property
    def is_stored(self) -> bool:
        """True if the decision is stored."""
        return self.result.is_applied((CONFIG_MAP.name, intent_name(self.observed.owner.name)))

    @property
    def replicas(self) -> dict[Role, int | None]:
        """Replicas to ask for of each role; None: the number has another owner."""
        return replicas(self.observed, self.service, self.decision, self.foreign_owners)

    @property
    def certificates(self) -> dict[Role, str]:
        """Names of the Secrets with the certificates that each role's pods are to have; empty:
        none."""
        name = self.observed.owner.name
        return {role: self.platform.certificate_of(name, role) for role in roles(self.service)}

    @property
    def desired(self) -> Desired:
        """The objects that carry out the decision, those with certificates first."""
        owner, service, platform = self.observed.owner, self.service, self.platform
        intent = Intent(policy=self.policy, memory=self.decision.memory.dumps())
        made = desired(
            owner, service, self.replicas, intent, platform, self.observed.live_workloads
        )
        children, signers = self.observed.children, self.signers
        lender = service.spec.drafts_of
        secrets = certificate_secrets(owner, roles(service), children, signers, self.now, lender)
        return replace(made, objects=(*secrets, *made.objects))

    @property
    def policy(self) -> PolicySettings:
        """The policy that targets are to follow."""
        return policy_for(self.observed, self.service, self.decision)

    @property
    def percentages(self) -> dict[str, int]:
        """Gain and hit rate of drafts as the status has them, as far as they are known."""
        window, old = self.window, self.observed.status.get("speculation", {})
        gain, hits = (None, None) if window is None else (window.gain_percent, window.hit_rate)
        found = (gain, None if hits is None else 100 * hits)
        named = zip(PERCENTAGES, found, strict=True)
        shown = {name: _rounded(percent, old.get(name)) for name, percent in named}
        return {name: percent for name, percent in shown.items() if percent is not None}


def _rounded(percent: float | None, old: int | None) -> int | None:
    """Return the old percentage while nothing newer is known, or it is nearly right: a status is
    not a metric."""
    if percent is None or (old is not None and abs(percent - old) < ROUNDING):
        return old
    return ROUNDING * round(percent / ROUNDING)
