"""What keeps a role's pods running: a Deployment, its claim for a cache, its scaler."""

from outrider.contract.settings import Role
from outrider.operator.kinds import CLAIM, DEPLOYMENT, ROLE_SCALER
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.manifests.pods import claim_name
from outrider.operator.naming import role_name, selector
from outrider.operator.spec import Cache, ScaledRole, Strategy, Update


def deployment(
    owner: Owner, role: Role, template: Object, replicas: int | None, update: Update
) -> Object:
    """A role whose replicas are one pod each; `replicas` None: someone else owns the number."""
    spec: Object = {
        "selector": {"matchLabels": selector(owner.name, role)},
        "template": template,
        "strategy": _strategy(update),
        "progressDeadlineSeconds": update.progress_seconds,
        "revisionHistoryLimit": 2,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return child(DEPLOYMENT, owner, role_name(owner.name, role), role, spec=spec)


def claim(owner: Owner, role: Role, cache: Cache) -> Object:
    """Room for prepared models that outlives the pods."""
    spec: Object = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.storage_class_name:
        spec["storageClassName"] = cache.storage_class_name
    return child(CLAIM, owner, claim_name(owner, role), role, spec=spec)


def scaler(owner: Owner, role: Role, replicas: int | None = None) -> Object:
    """What an autoscaler aims at; `replicas` only where it is made, afterwards others own it."""
    spec: Object = {"service": owner.name, "role": ScaledRole[role.name].value}
    if replicas is not None:
        spec["replicas"] = replicas
    return child(ROLE_SCALER, owner, role_name(owner.name, role), role, spec=spec)


def _strategy(update: Update) -> Object:
    if update.strategy is Strategy.RECREATE:
        return {"type": "Recreate"}
    rolling = {"maxUnavailable": update.max_unavailable, "maxSurge": update.max_surge}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}
