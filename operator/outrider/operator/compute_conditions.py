"""Computes the conditions of a service from what one pass observed and did. Pure.

Each is an observation of its own, none a step of a state machine; `conditions` has their reasons.
Leaves times to `status`.
"""

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from outrider.client.state import Link, LinkState
from outrider.contract.settings import Role
from outrider.operator import members
from outrider.operator.apply import ApplyResult
from outrider.operator.cluster.kinds import ChildKey
from outrider.operator.conditions import (
    ConditionType,
    DegradedReason,
    DraftReason,
    LinkReason,
    MetricsReason,
    ProgressingReason,
    ReadyReason,
    TargetReason,
)
from outrider.operator.control.inputs import Decision
from outrider.operator.control.reasons import Reason
from outrider.operator.control.samples import Window
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.naming import DRAFT_CONTAINER
from outrider.operator.observed import Observed, Workload
from outrider.operator.pods import Pod
from outrider.operator.spec import SpeculativeService, Strategy, Suspend
from outrider.operator.workers.poll import (
    WorkerPoll,
    draft_addresses,
    links,
    links_up,
    ready,
)


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One observation; `holds` None: not known."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """Input of all conditions: what one pass observed, decided and did."""

    observed: Observed
    service: SpeculativeService
    poll: WorkerPoll
    decision: Decision
    window: Window | None
    """Window that the decision was based on."""
    result: ApplyResult
    """Outcome of applying the children."""
    now: float
    """Seconds since the epoch."""
    foreign_owners: Mapping[Role, str] = field(default_factory=dict)
    """Roles whose number of replicas has another owner, and its name."""


def conditions(view: View) -> tuple[ConditionState, ...]:
    """Return all conditions, in the order in which people read them."""
    target = _target(view)
    return (
        _ready(view, target),
        target,
        _draft(view),
        _links(view),
        _speculation(view),
        _metrics(view),
        _progressing(view),
        _degraded(view),
    )


def invalid(problem: str) -> tuple[ConditionState, ...]:
    """Return the conditions of a service that cannot be read; its pods are left as they are."""
    return (
        ConditionState(ConditionType.READY, None, ReadyReason.INVALID_SPEC, problem),
        ConditionState(ConditionType.DEGRADED, True, DegradedReason.INVALID_SPEC, problem),
    )


def _ready(view: View, target: ConditionState) -> ConditionState:
    kind = ConditionType.READY
    if view.service.spec.suspend is Suspend.SUSPENDED:
        return ConditionState(kind, False, ReadyReason.SUSPENDED, "spec.suspend is Suspended")
    serves = bool(ready(view.observed, Role.TARGET))
    reason = ReadyReason.SERVING if serves else ReadyReason.TARGET_NOT_READY
    return ConditionState(kind, serves, reason, target.message)


def _target(view: View) -> ConditionState:
    kind, wanted = ConditionType.TARGET_AVAILABLE, _wanted(view, Role.TARGET)
    serving = ready(view.observed, Role.TARGET)
    every = view.observed.members_of(Role.TARGET)
    words = f"{len(serving)} of {wanted} targets serve"
    if wanted == 0:
        return ConditionState(kind, False, TargetReason.SCALED_TO_ZERO, words)
    if len(serving) >= wanted:
        return ConditionState(kind, True, TargetReason.READY, words)
    reason = TargetReason.INSUFFICIENT_CAPACITY if _stuck(every) else TargetReason.PODS_NOT_READY
    return ConditionState(kind, False, reason, words + _lacks(view, Role.TARGET))


def _draft(view: View) -> ConditionState:
    kind = ConditionType.DRAFT_AVAILABLE
    same_pod = view.service.spec.same_pod
    if Role.DRAFT not in roles(view.service) and not same_pod:
        if view.service.spec.draft is None:
            return ConditionState(kind, False, DraftReason.NOT_REQUIRED, "the service has no draft")
        return ConditionState(
            kind, True, DraftReason.COLOCATED, "the draft runs inside the targets"
        )
    pods = Role.TARGET if same_pod else Role.DRAFT
    serving, wanted = serving_drafts(view), _wanted(view, pods)
    every = view.observed.members_of(pods)
    words = f"{serving} of {wanted} drafts {'are linked' if same_pod else 'take sessions'}"
    if wanted == 0:
        return ConditionState(kind, False, DraftReason.SCALED_TO_ZERO, words)
    if serving >= wanted:
        return ConditionState(kind, True, DraftReason.READY, words)
    if same_pod:
        words += f"; they are the containers {DRAFT_CONTAINER} of the targets' pods"
    reason = DraftReason.INSUFFICIENT_CAPACITY if _stuck(every) else DraftReason.PODS_NOT_READY
    return ConditionState(kind, False, reason, words + _lacks(view, pods))


def serving_drafts(view: View) -> int:
    """Return the drafts that are ready, or, in targets' pods, which are ready without them, those
    that are linked."""
    if view.service.spec.same_pod:
        return links_up(view.poll, view.observed, view.service)
    return len(ready(view.observed, Role.DRAFT))


def _wanted(view: View, role: Role) -> int:
    """Return the replicas that are wanted of a role now."""
    live = view.observed.workload(role)
    return 1 if live is None else live.replicas


def _links(view: View) -> ConditionState:
    kind = ConditionType.LINK_ESTABLISHED
    targets = ready(view.observed, Role.TARGET)
    expected = len(targets) * len(draft_addresses(view.observed, view.service))
    if expected == 0:
        if not _pairs_wanted(view):
            return ConditionState(kind, True, LinkReason.NOT_REQUIRED, "no link is wanted")
        return ConditionState(kind, False, LinkReason.CONNECTING, "there is no pair yet")
    up = links_up(view.poll, view.observed, view.service)
    known = links(view.poll, view.observed, view.service)
    words = f"{up} of {expected} links are up" + _carried(known)
    refused = next((link for link in known if link.state is LinkState.REFUSED), None)
    if refused is not None and not up:
        detail = f"{words}; {refused.address}: {refused.detail}"
        return ConditionState(kind, False, LinkReason.REFUSED, detail)
    if up == expected:
        return ConditionState(kind, True, LinkReason.CONNECTED, words)
    return ConditionState(kind, up > 0, _part(up), words)


def _carried(known: Iterable[Link]) -> str:
    """Name what carries the links that are up, and why it is nothing shorter if one says so."""
    up = [link for link in known if link.state is LinkState.UP and link.transport]
    if not up:
        return ""
    transports = " and ".join(sorted({link.transport.replace("_", " ") for link in up}))
    detail = next((f" ({link.detail})" for link in up if link.detail), "")
    return f", through {transports}{detail}"


def _pairs_wanted(view: View) -> bool:
    """True if there is to be a draft that targets link to."""
    if view.service.spec.same_pod:
        return _wanted(view, Role.TARGET) > 0
    return Role.DRAFT in roles(view.service) and _wanted(view, Role.DRAFT) > 0


def _part(up: int) -> LinkReason:
    return LinkReason.PARTIALLY_CONNECTED if up else LinkReason.CONNECTING


def _speculation(view: View) -> ConditionState:
    decision = view.decision
    active = decision.speculate and decision.reason in (Reason.ACTIVE, Reason.PROBING)
    if decision.reason is Reason.METRICS_UNAVAILABLE:
        active = decision.speculate
    return ConditionState(
        ConditionType.SPECULATION_ACTIVE, active, decision.reason.value, decision.sentence
    )


def _metrics(view: View) -> ConditionState:
    kind, serving = ConditionType.METRICS_AVAILABLE, ready(view.observed, Role.TARGET)
    if not serving:
        return ConditionState(kind, None, MetricsReason.NO_PODS, "no target serves yet")
    if view.poll.failure:
        return ConditionState(kind, False, MetricsReason.PROMETHEUS_FAILED, view.poll.failure)
    if view.poll.problems:
        name, problem = next(iter(sorted(view.poll.problems.items())))
        return ConditionState(kind, False, MetricsReason.METRICS_MISSING, f"{name}: {problem}")
    if view.decision.reason is Reason.METRICS_UNAVAILABLE:
        return ConditionState(
            kind, False, MetricsReason.METRICS_STALE, "no metrics that are new enough"
        )
    return ConditionState(kind, True, MetricsReason.METRICS_FOUND, f"{len(serving)} targets report")


def _progressing(view: View) -> ConditionState:
    kind = ConditionType.PROGRESSING
    for role in roles(view.service):
        live = view.observed.workload(role)
        if live is None:
            words = f"the {role} is being created"
            return ConditionState(kind, True, ProgressingReason.ROLLING_OUT, words)
        if live.failed:
            words = f"{role}: {live.failed}" + _lacks(view, role)
            return ConditionState(kind, False, ProgressingReason.ROLLOUT_FAILED, words)
        if not live.settled:
            return ConditionState(kind, True, *_under_way(view, role, live))
    if view.service.spec.suspend is Suspend.SUSPENDED:
        return ConditionState(kind, False, ProgressingReason.SUSPENDED, "spec.suspend is Suspended")
    words = "all replicas are as the service describes them"
    return ConditionState(kind, False, ProgressingReason.COMPLETE, words)


def _under_way(view: View, role: Role, live: Workload) -> tuple[ProgressingReason, str]:
    """Return reason and message while a role's pods are added or replaced."""
    words = f"{role}: {live.updated} of {live.replicas} replicas are new"
    words += f", {live.available} available" + _lacks(view, role)
    recreates = role_spec(view.service, role).update.strategy is Strategy.RECREATE
    if recreates and (live.replacing or not live.available):
        outage = "; the old pods end before new ones start: nobody answers meanwhile"
        return ProgressingReason.RECREATING, words + outage * (role is Role.TARGET)
    reason = ProgressingReason.ROLLING_OUT if live.replacing else ProgressingReason.SCALING
    return reason, words


def _degraded(view: View) -> ConditionState:
    for reason, words in _wrong(view):
        return ConditionState(ConditionType.DEGRADED, True, reason, words)
    return ConditionState(
        ConditionType.DEGRADED, False, DegradedReason.AS_EXPECTED, "nothing is known to be wrong"
    )


def _wrong(view: View) -> Iterator[tuple[DegradedReason, str]]:
    """Yield every problem, worst first."""
    for key, problem in view.result.refused.items():
        yield DegradedReason.FORBIDDEN, f"{' '.join(key)}: {problem}{_waiting(view, key)}"
    for key in view.result.foreign:
        words = f"{' '.join(key)} belongs to somebody else and is left alone{_waiting(view, key)}"
        yield DegradedReason.FOREIGN_OBJECT, words
    for role in roles(view.service):
        live = view.observed.workload(role)
        if live is not None and live.failed:
            yield (
                DegradedReason.ROLLOUT_FAILED,
                f"{role}: {live.failed}{_lacks(view, role)}; what ran before keeps running",
            )
    for role, owner in view.foreign_owners.items():
        yield (
            DegradedReason.REPLICAS_CONTESTED,
            f"{owner!r} sets the {role}'s replicas, which are the operator's",
        )
    if _lost_for(view) >= LOST_SECONDS:
        yield DegradedReason.DRAFT_LOST, view.decision.sentence
    for pod in (*view.observed.pods, *view.observed.followers):
        if pod.trouble and not pod.leaving and not pod.trouble.startswith(UNSCHEDULED):
            yield DegradedReason.PODS_FAILING, f"{pod.name}: {pod.trouble}"


def _waiting(view: View, lack: ChildKey) -> str:
    """Name the objects that wait for one that could not be made."""
    names = [" ".join(key) for key, of in view.result.waiting.items() if of == lack]
    return f"; until it is made, what needs it stays as it is: {', '.join(names)}" if names else ""


LOST_SECONDS = 300.0
"""Time for which wanted drafts may be gone before Degraded reports it; most come back."""
UNSCHEDULED = "Unschedulable"


def _lost_for(view: View) -> float:
    """Return seconds since drafts were lost, by the condition that reported it; 0: they are not."""
    if view.decision.reason is not Reason.DRAFT_LOST:
        return 0.0
    old = (
        c for c in view.observed.status.get("conditions", ()) if c["reason"] == Reason.DRAFT_LOST
    )
    since = next((c["lastTransitionTime"] for c in old), None)
    return 0.0 if since is None else view.now - datetime.datetime.fromisoformat(since).timestamp()


def _stuck(pods: tuple[Pod, ...]) -> bool:
    return any(pod.trouble.startswith(UNSCHEDULED) for pod in pods)


def _lacks(view: View, role: Role) -> str:
    """Name what keeps a role's replicas from serving, as far as it is known."""
    word = "stage" if role_spec(view.service, role).parallelism.stages > 1 else "machine"
    if found := members.missing(view.observed, role, word):
        return f"; {found}"
    pods = view.observed.members_of(role)
    return next((f"; {pod.name}: {pod.trouble}" for pod in pods if pod.trouble), "")
