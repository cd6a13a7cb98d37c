"""Conditions of a rollout: whether one runs, is stalled, or is complete. Pure."""

from outrider.contract.settings import Role
from outrider.operator.apply.applier import WORKLOADS
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.naming import restart_command
from outrider.operator.observed.workload import Workload
from outrider.operator.spec.conditions import (
    ConditionType,
    ProgressingReason,
    ReconcilingReason,
    StalledReason,
)
from outrider.operator.spec.pods import Strategy
from outrider.operator.spec.service import Suspend
from outrider.operator.status.problems import lacks, problems
from outrider.operator.status.view import ConditionState, View


def rolled_out_generation(view: View) -> int:
    """Return the newest generation of which all pods have been available; 0: none is known."""
    last = int(view.observed.status.get("rolledOutGeneration", 0))
    if _is_rolling_out(view) or not all(
        _is_complete(view, role, last) for role in roles(view.service)
    ):
        return last
    return view.observed.generation


def _is_complete(view: View, role: Role, last: int) -> bool:
    """True if all replicas that a role wants are new and available. Drafts that were so before an
    edit that does not concern them may be gone: targets answer without them."""
    live, status = view.observed.workload(role), view.observed.status
    if live is None:
        return False
    if live.updated == live.replicas <= live.available:
        return True
    same = status.get(role.value, {}).get("revision") == live.revision
    return role is Role.DRAFT and same and 0 < last == status.get("observedGeneration")


def _is_rolling_out(view: View) -> bool:
    """True if pods are not of the newest description, for whatever reason."""
    if any(kind in WORKLOADS for kind, _ in view.result.unapplied):
        return True
    lives = [view.observed.workload(role) for role in roles(view.service)]
    return any(live is None or live.replacing or live.failed for live in lives)


def progressing(view: View) -> ConditionState:
    """Return whether pods are replaced, added or taken away."""
    kind = ConditionType.PROGRESSING
    for role in roles(view.service):
        live = view.observed.workload(role)
        if live is None:
            words = f"the {role} is being created"
            return ConditionState(kind, True, ProgressingReason.ROLLING_OUT, words)
        if live.failed:
            words = f"{role}: {live.failed}" + lacks(view, role)
            return ConditionState(kind, False, ProgressingReason.ROLLOUT_FAILED, words)
        if not live.settled:
            return ConditionState(kind, True, *_under_way(view, role, live))
    if view.service.spec.suspend is Suspend.SUSPENDED:
        return ConditionState(kind, False, ProgressingReason.SUSPENDED, "spec.suspend is Suspended")
    words = "all replicas are as the service describes them"
    if view.wanted.next_revisions:
        command = restart_command(*view.observed.key)
        words += f"; this version of the operator would make other pods: {command}"
    return ConditionState(kind, False, ProgressingReason.COMPLETE, words)


def _under_way(view: View, role: Role, live: Workload) -> tuple[ProgressingReason, str]:
    """Return reason and message while a role's pods are added or replaced."""
    words = f"{role}: {live.updated} of {live.replicas} replicas are new"
    words += f", {live.available} available" + lacks(view, role)
    recreates = role_spec(view.service, role).update.strategy is Strategy.RECREATE
    if recreates and (live.replacing or not live.available):
        outage = "; the old pods end before new ones start: nobody answers meanwhile"
        return ProgressingReason.RECREATING, words + outage * (role is Role.TARGET)
    reason = ProgressingReason.ROLLING_OUT if live.replacing else ProgressingReason.SCALING
    return reason, words


def stalled(view: View) -> ConditionState:
    """Return what a person has to mend before the newest generation can be carried out."""
    kind = ConditionType.STALLED
    for reason, words in problems(view):
        if reason.value in tuple(StalledReason):
            return ConditionState(kind, True, StalledReason(reason.value), words)
    return ConditionState(kind, False, StalledReason.NOT_STALLED, "nothing is in the way")


def reconciling(view: View, progressing: ConditionState, stalled: ConditionState) -> ConditionState:
    """Return whether the operator, or whoever runs pods for it, still has something to do."""
    kind = ConditionType.RECONCILING
    if progressing.holds and not stalled.holds:
        return ConditionState(kind, True, ReconcilingReason.PROGRESSING, progressing.message)
    if view.result.failed and not stalled.holds:
        names = ", ".join(" ".join(key) for key in sorted(view.result.failed))
        words = f"tried again: {names}"
        return ConditionState(kind, True, ReconcilingReason.APPLYING, words)
    return ConditionState(kind, False, ReconcilingReason.COMPLETE, "nothing is under way")
