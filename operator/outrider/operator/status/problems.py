"""Problems of a service, worst first, in the cluster's words. Pure."""

import re
from collections.abc import Iterable, Iterator

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import CLAIM, ChildKey
from outrider.operator.control.reasons import LoopReason
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.observed import members
from outrider.operator.observed.pods import GATED, UNSCHEDULABLE, Pod, seconds_since
from outrider.operator.spec.conditions import DegradedReason, TargetReason
from outrider.operator.status.view import View

LOST_SECONDS = 300.0
"""Time for which wanted drafts may be gone before Degraded reports it; most come back."""
_IN_PLACE = "; without room to spare, set spec.{0}.update.maxSurge: 0 and maxUnavailable: 1"
UNBOUND = re.compile(r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim .* not found")
"""The scheduler's words for a pod whose claim keeps it waiting."""


def problems(view: View) -> Iterator[tuple[DegradedReason, str]]:
    """Yield every problem, worst first."""
    refused = view.result.refused
    for key in sorted(refused, key=lambda one: (not _waiting(view, one), one)):
        yield DegradedReason.FORBIDDEN, f"{' '.join(key)}: {refused[key]}{_waiting(view, key)}"
    for key, problem in view.failing.items():
        words = f"{' '.join(key)}: {problem}{_waiting(view, key)}"
        yield DegradedReason.APPLY_FAILED, f"{words}; it is tried again"
    for key, owner in view.result.foreign.items():
        words = f"{' '.join(key)} belongs to {owner} and is left alone{_waiting(view, key)}"
        yield DegradedReason.FOREIGN_OBJECT, words
    for role in roles(view.service):
        live = view.observed.workload(role)
        if live is not None and live.failed:
            kept = "; what ran before keeps running" if live.ready else ""
            yield DegradedReason.ROLLOUT_FAILED, f"{role}: {live.failed}{lacks(view, role)}{kept}"
    for role, owner in view.foreign_owners.items():
        yield (
            DegradedReason.REPLICAS_CONTESTED,
            f"{owner!r} sets the {role}'s replicas, which are the operator's",
        )
    if _lost_for(view) >= LOST_SECONDS:
        yield DegradedReason.DRAFT_LOST, view.decision.sentence
    for pod in (*view.observed.pods, *view.observed.followers):
        if pod.trouble and not pod.leaving and waits_for((pod,)) is None:
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
    return 0.0 if since is None else seconds_since(since, view.now)


def waits_for(pods: Iterable[Pod]) -> TargetReason | None:
    """Return what pods wait for that no node has taken; None: they wait for no node."""
    troubles = [pod.trouble for pod in pods]
    if any(one.startswith(GATED) for one in troubles):
        return TargetReason.QUEUED
    stuck = [one for one in troubles if one.startswith(UNSCHEDULABLE)]
    if any(map(UNBOUND.search, stuck)):
        return TargetReason.CLAIM_NOT_BOUND
    return TargetReason.INSUFFICIENT_CAPACITY if stuck else None


def lacks(view: View, role: Role) -> str:
    """Name what keeps a role's replicas from serving, as far as it is known."""
    word = "stage" if role_spec(view.service, role).parallelism.stages > 1 else "machine"
    if found := members.missing(view.observed, role, word):
        return f"; {found}"
    pods = view.observed.members_of(role)
    found = next((f"; {pod.name}: {pod.trouble}" for pod in pods if pod.trouble), "")
    waits = waits_for(pods)
    if waits is TargetReason.CLAIM_NOT_BOUND:
        return found + "".join(_claims(view))
    live = view.observed.workload(role)
    surges = live is not None and live.replacing and role_spec(view.service, role).update.surges
    return found + _IN_PLACE.format(role) * (surges and waits is TargetReason.INSUFFICIENT_CAPACITY)


def _claims(view: View) -> Iterator[str]:
    """Describe the service's claims that have no volume."""
    for (kind, name), live in view.observed.children.items():
        if kind == CLAIM.name and live.get("status", {}).get("phase") != "Bound":
            wanted = live["spec"].get("storageClassName") or "the cluster's default"
            modes = ", ".join(live["spec"].get("accessModes", ()))
            yield f"; claim {name} is not bound: storage class {wanted}, {modes}"
