"""How many replicas each role is to have, and whose number that is. Pure.

Every number has one owner: the service, an autoscaler through the role's scaler, the control loop,
or, where the service leaves it out, whoever sets it in the cluster.
"""

from outrider.contract.settings import Role
from outrider.operator.control.inputs import Decision
from outrider.operator.desired import role_spec, roles
from outrider.operator.manifests.child import ChildKey
from outrider.operator.manifests.workloads import scaler
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed import Object, Observed, child_key
from outrider.operator.spec import ScalingMode, SpeculativeService, Suspend


def replicas(
    seen: Observed, service: SpeculativeService, role: Role, decision: Decision
) -> int | None:
    """Replicas to ask for; None: somebody else owns the number."""
    spec = role_spec(service, role)
    if service.spec.suspend is Suspend.SUSPENDED:
        return 0
    mode = _mode(service, role)
    if role is Role.DRAFT and mode == ScalingMode.MANAGED:
        return decision.draft_replicas
    if mode == ScalingMode.EXTERNAL:
        wanted = seen.scaler_replicas(role)
        present = first(seen, service, role) if wanted is None else wanted
        return min(max(present, spec.scaling.min_replicas), spec.scaling.max_replicas)
    return _left_alone(seen, role) if spec.replicas is None else spec.replicas


def first(seen: Observed, service: SpeculativeService, role: Role) -> int:
    """Replicas that a scaler starts with: those that run now, else the service's."""
    live = seen.workload(role)
    return role_spec(service, role).first_replicas if live is None else live.replicas


def seeds(seen: Observed, service: SpeculativeService) -> dict[ChildKey, Object]:
    """The scalers that roles want, as they are made at first; afterwards others own the number."""
    external = (r for r in roles(service) if _mode(service, r) == ScalingMode.EXTERNAL)
    made = (scaler(seen.owner, role, first(seen, service, role)) for role in external)
    return {child_key(one): one for one in made}


def _mode(service: SpeculativeService, role: Role) -> str:
    return role_spec(service, role).scaling.mode.value


def _left_alone(seen: Observed, role: Role) -> int | None:
    """The number as it is, as long as it is still ours: a field that its only owner no longer
    applies goes back to 1. What a suspension left at 0 comes back as 1."""
    live = seen.workload(role)
    if live is None or live.owner != FIELD_MANAGER:
        return None
    return live.replicas or 1
