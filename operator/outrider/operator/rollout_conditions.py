"""Problems of a service, worst first, in the cluster's words, and conditions of a rollout: whether
one runs, has failed, or is complete. Pure.
"""

import datetime
from collections.abc import Iterator

from outrider.contract.settings import Role
from outrider.operator import members
from outrider.operator.apply import WORKLOADS
from outrider.operator.cluster.kinds import ChildKey
from outrider.operator.conditions import (
    ConditionType,
    DegradedReason,
    ProgressingReason,
    ReconcilingReason,
    StalledReason,
)
from outrider.operator.control.reasons import LoopReason
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.naming import restart_command
from outrider.operator.observed import Workload
from outrider.operator.pods import Pod
from outrider.operator.spec.pods import Strategy
from outrider.operator.spec.service import Suspend
from outrider.operator.view import ConditionState, View


def rolled_out_generation(view: View) -> int:
    """Return the newest generation of which all pods have been; 0: none is known."""
    last = int(view.observed.status.get("rolledOutGeneration", 0))
    return last if _is_rolling_out(view) else view.observed.generation


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
    if view.keeps_pods:
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


LOST_SECONDS = 300.0
"""Time for which wanted drafts may be gone before Degraded reports it; most come back."""
UNSCHEDULED = "Unschedulable"


def problems(view: View) -> Iterator[tuple[DegradedReason, str]]:
    """Yield every problem, worst first."""
    for key, problem in view.result.refused.items():
        yield DegradedReason.FORBIDDEN, f"{' '.join(key)}: {problem}{_waiting(view, key)}"
    for key, problem in view.failing.items():
        words = f"{' '.join(key)}: {problem}{_waiting(view, key)}"
        yield DegradedReason.APPLY_FAILED, f"{words}; it is tried again"
    for key, owner in view.result.foreign.items():
        words = f"{' '.join(key)} belongs to {owner} and is left alone{_waiting(view, key)}"
        yield DegradedReason.FOREIGN_OBJECT, words
    for role in roles(view.service):
        live = view.observed.workload(role)
        if live is not None and live.failed:
            yield (
                DegradedReason.ROLLOUT_FAILED,
                f"{role}: {live.failed}{lacks(view, role)}; what ran before keeps running",
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


def _lost_for(view: View) -> float:
    """Return seconds since drafts were lost, by the condition that reported it; 0: they are not."""
    if view.decision.reason is not LoopReason.DRAFT_LOST:
        return 0.0
    old = (
        c
        for c in view.observed.status.get("conditions", ())
        if c["reason"] == LoopReason.DRAFT_LOST
    )
    since = next((c["lastTransitionTime"] for c in old), None)
    return 0.0 if since is None else view.now - datetime.datetime.fromisoformat(since).timestamp()


def stuck(pods: tuple[Pod, ...]) -> bool:
    """True if no node has room for one of the pods."""
    return any(pod.trouble.startswith(UNSCHEDULED) for pod in pods)


def lacks(view: View, role: Role) -> str:
    """Name what keeps a role's replicas from serving, as far as it is known."""
    word = "stage" if role_spec(view.service, role).parallelism.stages > 1 else "machine"
    if found := members.missing(view.observed, role, word):
        return f"; {found}"
    pods = view.observed.members_of(role)
    return next((f"; {pod.name}: {pod.trouble}" for pod in pods if pod.trouble), "")
