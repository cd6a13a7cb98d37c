"""A role's Deployment and what goes with its pods: account, budget, claim for a cache, scaler."""

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    BUDGET,
    CLAIM,
    DEPLOYMENT,
    ROLE_SCALER,
    SERVICE_ACCOUNT,
)
from outrider.operator.manifests.child import Object, child, queued
from outrider.operator.manifests.pods import claim_name
from outrider.operator.naming import role_name, selector
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.pods import Cache, Strategy, Update
from outrider.operator.spec.scaler import ScaledRole


def deployment(
    owner: Owner, role: Role, template: Object, replicas: int | None, update: Update
) -> Object:
    """Return the Deployment of a role; `replicas` None: the number has another owner."""
    spec: Object = {
        "selector": {"matchLabels": selector(owner.name, role)},
        "template": template,
        "strategy": _strategy(update),
        "progressDeadlineSeconds": update.progress_seconds,
        "revisionHistoryLimit": 2,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    made = child(DEPLOYMENT, owner, role_name(owner.name, role), role, spec=spec)
    return queued(made, template)


def claim(owner: Owner, role: Role, cache: Cache) -> Object:
    """Return the claim for prepared models, which outlives the pods."""
    spec: Object = {
        "accessModes": [cache.access_mode.value],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.storage_class_name:
        spec["storageClassName"] = cache.storage_class_name
    return child(CLAIM, owner, claim_name(owner, role), role, spec=spec)


def scaler(owner: Owner, role: Role, replicas: int | None = None) -> Object:
    """Return the scaler of a role; `replicas` only where it is made, afterwards others own it."""
    spec: Object = {"service": owner.name, "role": ScaledRole[role.name].value}
    if replicas is not None:
        spec["replicas"] = replicas
    return child(ROLE_SCALER, owner, role_name(owner.name, role), role, spec=spec)


def service_account(owner: Owner) -> Object:
    """Return the identity of all pods of a service, which has no permissions."""
    return child(SERVICE_ACCOUNT, owner, owner.name, automountServiceAccountToken=False)


def disruption_budget(owner: Owner, role: Role, max_unavailable: int | str, pods: int) -> Object:
    """Return the bound of evictions of a role. All `pods` of a replica count, because losing
    one is losing all: a percentage of their number is smaller by that factor."""
    spec = {
        "maxUnavailable": _of_pods(max_unavailable, pods),
        "selector": {"matchLabels": selector(owner.name, role)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return child(BUDGET, owner, role_name(owner.name, role), role, spec=spec)


def _of_pods(replicas: int | str, pods: int) -> int | str:
    """Return the pods that may be missing so that at most so many replicas are; Kubernetes rounds
    up."""
    if isinstance(replicas, int) or pods == 1:
        return replicas
    percent = int(replicas.removesuffix("%"))
    return f"{max(percent // pods, min(percent, 1))}%"


def _strategy(update: Update) -> Object:
    if update.strategy is Strategy.RECREATE:
        return {"type": "Recreate"}
    rolling = {"maxUnavailable": update.max_unavailable, "maxSurge": update.max_surge}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}
