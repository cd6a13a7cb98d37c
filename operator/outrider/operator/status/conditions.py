"""Computes the conditions of a service from what one pass observed and did. Pure.

Each is an observation of its own, none a step of a state machine; `spec.conditions` has
their reasons.
Leaves times to `status`.
"""

from collections.abc import Iterable

from outrider.contract.settings import Role
from outrider.contract.state import INSIDE, Link, LinkState
from outrider.operator.control.reasons import LoopReason
from outrider.operator.manifests.desired import roles
from outrider.operator.naming import DRAFT_CONTAINER
from outrider.operator.spec.conditions import (
    ConditionType,
    DegradedReason,
    DraftReason,
    LinkReason,
    MetricsReason,
    ReadyReason,
    ReconcilingReason,
    StalledReason,
    TargetReason,
)
from outrider.operator.spec.service import Suspend
from outrider.operator.status import rollout
from outrider.operator.status.problems import lacks, problems, waits_for
from outrider.operator.status.view import ConditionState, View
from outrider.operator.workers.poll import (
    draft_addresses,
    links,
    links_up,
)


def conditions(view: View) -> tuple[ConditionState, ...]:
    """Return all conditions, in the order in which people read them."""
    target, progressing = _target(view), rollout.progressing(view)
    stalled = rollout.stalled(view)
    return (
        _ready(view, target, stalled),
        target,
        _draft(view),
        _links(view),
        _speculation(view),
        _metrics(view),
        progressing,
        _degraded(view),
        rollout.reconciling(view, progressing, stalled),
        stalled,
    )


def invalid(problem: str) -> tuple[ConditionState, ...]:
    """Return the conditions of a service that cannot be read; its pods are left as they are."""
    return (
        ConditionState(ConditionType.READY, None, ReadyReason.INVALID_SPEC, problem),
        ConditionState(ConditionType.DEGRADED, True, DegradedReason.INVALID_SPEC, problem),
        *_standstill(StalledReason.INVALID_SPEC, problem),
    )


def broken(problem: str) -> tuple[ConditionState, ...]:
    """Return the conditions of a service at which the operator itself fails."""
    return (
        ConditionState(ConditionType.DEGRADED, True, DegradedReason.OPERATOR_FAILED, problem),
        *_standstill(StalledReason.OPERATOR_FAILED, problem),
    )


def _standstill(reason: StalledReason, problem: str) -> tuple[ConditionState, ...]:
    nothing = ReconcilingReason.COMPLETE
    return (
        ConditionState(ConditionType.RECONCILING, False, nothing, "nothing is under way"),
        ConditionState(ConditionType.STALLED, True, reason, problem),
    )


def _ready(view: View, target: ConditionState, stalled: ConditionState) -> ConditionState:
    kind = ConditionType.READY
    if view.service.spec.suspend is Suspend.SUSPENDED:
        return ConditionState(kind, False, ReadyReason.SUSPENDED, "spec.suspend is Suspended")
    if not view.observed.serving(Role.TARGET):
        return ConditionState(kind, False, ReadyReason.TARGET_NOT_READY, target.message)
    generation = view.observed.generation
    if rollout.rolled_out_generation(view) == generation:
        return ConditionState(kind, True, ReadyReason.SERVING, target.message)
    words = f"{target.message}; generation {generation}"
    if stalled.holds:
        words += " is not rolled out: see Stalled"
        return ConditionState(kind, False, ReadyReason.ROLLOUT_FAILED, words)
    words += " is being rolled out: see Progressing"
    return ConditionState(kind, False, ReadyReason.ROLLING_OUT, words)


def _target(view: View) -> ConditionState:
    kind, wanted = ConditionType.TARGET_AVAILABLE, _wanted(view, Role.TARGET)
    serving = view.observed.serving(Role.TARGET)
    every = view.observed.members_of(Role.TARGET)
    words = f"{len(serving)} of {wanted} targets serve"
    if wanted == 0:
        return ConditionState(kind, False, TargetReason.SCALED_TO_ZERO, words)
    if len(serving) >= wanted:
        return ConditionState(kind, True, TargetReason.READY, words)
    reason = waits_for(every) or TargetReason.PODS_NOT_READY
    return ConditionState(kind, False, reason, words + lacks(view, Role.TARGET))


def _draft(view: View) -> ConditionState:
    kind = ConditionType.DRAFT_AVAILABLE
    same_pod = view.service.spec.same_pod
    if Role.DRAFT not in roles(view.service) and not same_pod:
        if (lender := view.service.spec.drafts_of) is not None:
            return _lent(view, lender)
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
    reason = DraftReason(waits_for(every) or DraftReason.PODS_NOT_READY)
    return ConditionState(kind, False, reason, words + lacks(view, pods))


def _lent(view: View, lender: str) -> ConditionState:
    serving, kind = serving_drafts(view), ConditionType.DRAFT_AVAILABLE
    words = f"{serving} drafts of {lender} take sessions"
    reason = DraftReason.READY if serving else DraftReason.PODS_NOT_READY
    return ConditionState(kind, serving > 0, reason, words)


def serving_drafts(view: View) -> int:
    """Return the drafts that are ready, another service's too, or, in targets' pods, which are
    ready without them, those that are linked."""
    if view.service.spec.same_pod:
        return links_up(view.poll, view.observed, view.service)
    return len(view.observed.drafts)


def _wanted(view: View, role: Role) -> int:
    """Return the replicas that are wanted of a role now."""
    live = view.observed.workload(role)
    return 1 if live is None else live.replicas


def _links(view: View) -> ConditionState:
    kind = ConditionType.LINK_ESTABLISHED
    targets = view.observed.serving(Role.TARGET)
    expected = len(targets) * len(draft_addresses(view.observed, view.service))
    known = links(view.poll, view.observed, view.service)
    refused = next((link for link in known if link.state is LinkState.REFUSED), None)
    if expected == 0 and refused is None:
        if not _pairs_wanted(view):
            return ConditionState(kind, True, LinkReason.NOT_REQUIRED, "no link is wanted")
        return ConditionState(kind, False, LinkReason.CONNECTING, "there is no pair yet")
    up = links_up(view.poll, view.observed, view.service)
    words = f"{up} of {expected} links are up" + _carried(known)
    if refused is not None and not up:
        address = "" if refused.address == INSIDE else f"{refused.address}: "
        detail = f"{words}; {address}{refused.detail}"
        return ConditionState(kind, False, LinkReason.REFUSED, detail)
    if up == expected:
        return ConditionState(kind, True, LinkReason.CONNECTED, words)
    part = LinkReason.PARTIALLY_CONNECTED if up else LinkReason.CONNECTING
    return ConditionState(kind, up > 0, part, words)


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
    if view.service.spec.drafts_of is not None:
        return True
    if view.service.spec.same_pod:
        return _wanted(view, Role.TARGET) > 0
    return Role.DRAFT in roles(view.service) and _wanted(view, Role.DRAFT) > 0


def _speculation(view: View) -> ConditionState:
    decision = view.decision
    active = decision.speculate and decision.reason in (LoopReason.ACTIVE, LoopReason.PROBING)
    if decision.reason is LoopReason.METRICS_UNAVAILABLE:
        active = decision.speculate
    return ConditionState(
        ConditionType.SPECULATION_ACTIVE, active, decision.reason.value, decision.sentence
    )


def _metrics(view: View) -> ConditionState:
    kind, serving = ConditionType.METRICS_AVAILABLE, view.observed.serving(Role.TARGET)
    if not serving:
        return ConditionState(kind, None, MetricsReason.NO_PODS, "no target serves yet")
    if view.poll.problems:
        name, problem = next(iter(sorted(view.poll.problems.items())))
        return ConditionState(kind, False, MetricsReason.METRICS_MISSING, f"{name}: {problem}")
    if view.decision.reason is LoopReason.METRICS_UNAVAILABLE:
        return ConditionState(
            kind, False, MetricsReason.METRICS_STALE, "no metrics that are new enough"
        )
    return ConditionState(kind, True, MetricsReason.METRICS_FOUND, f"{len(serving)} targets report")


def _degraded(view: View) -> ConditionState:
    for reason, words in problems(view):
        return ConditionState(ConditionType.DEGRADED, True, reason, words)
    return ConditionState(
        ConditionType.DEGRADED, False, DegradedReason.AS_EXPECTED, "nothing is known to be wrong"
    )
