"""Number of replicas of each role, by its owner, and other owners that write it. Pure.

Every number has one owner: the service, an autoscaler through the role's scaler, the control loop,
or, where the service leaves it out, the last user who set it in the cluster.

A number of the operator's that is overwritten once is repaired. A second write within minutes means
another owner, an autoscaler say, and two owners would fight for ever: the number is left alone for
an hour, or until the description is edited. This state may be lost with the process: that costs one
more repair.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import ChildKey
from outrider.operator.control.inputs import Decision
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.manifests.workloads import scaler
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed.service import Object, Observed, child_key
from outrider.operator.spec.roles import ScalingMode
from outrider.operator.spec.service import SpeculativeService, Suspend


def replicas(
    observed: Observed,
    service: SpeculativeService,
    decision: Decision,
    foreign: Mapping[Role, str],
) -> dict[Role, int | None]:
    """Return the replicas to ask for of each role; None: the number has another owner, as those
    of `foreign` roles have."""
    return {
        role: None if role in foreign else _replicas(observed, service, role, decision)
        for role in roles(service)
    }


def _replicas(
    observed: Observed, service: SpeculativeService, role: Role, decision: Decision
) -> int | None:
    managed = role is Role.DRAFT and _mode(service, role) == ScalingMode.MANAGED
    if managed and service.spec.suspend is not Suspend.SUSPENDED:
        return decision.draft_replicas
    return replicas_of_spec(observed, service, role)


def replicas_of_spec(observed: Observed, service: SpeculativeService, role: Role) -> int | None:
    """Return the replicas of a role that the control loop does not scale; None: the number has
    another owner."""
    spec = role_spec(service, role)
    if service.spec.suspend is Suspend.SUSPENDED:
        return 0
    if _mode(service, role) == ScalingMode.EXTERNAL:
        wanted = observed.scaler_replicas(role)
        present = first(observed, service, role) if wanted is None else wanted
        return min(max(present, spec.scaling.min_replicas), spec.scaling.max_replicas)
    return _unchanged(observed, role) if spec.replicas is None else spec.replicas


def first(observed: Observed, service: SpeculativeService, role: Role) -> int:
    """Return the replicas that a scaler starts with: those that run now, else the service's."""
    live = observed.workload(role)
    return role_spec(service, role).first_replicas if live is None else live.replicas


def shrinks(observed: Observed, wanted: int | None) -> bool:
    """True if some targets are to go and others to stay; `wanted` None: the number has another
    owner."""
    live = observed.workload(Role.TARGET)
    return live is not None and wanted is not None and 0 < wanted < live.replicas


def seeds(observed: Observed, service: SpeculativeService) -> dict[ChildKey, Object]:
    """Return the scalers as they are made at first; afterwards others own the number."""
    external = (r for r in roles(service) if _mode(service, r) == ScalingMode.EXTERNAL)
    scalers = (scaler(observed.owner, role, first(observed, service, role)) for role in external)
    return {child_key(one): one for one in scalers}


def _mode(service: SpeculativeService, role: Role) -> str:
    return role_spec(service, role).scaling.mode.value


def _unchanged(observed: Observed, role: Role) -> int | None:
    """Return the number as it is, while the operator owns it: a field that its only owner no longer
    applies goes back to 1. What a suspension left at 0 comes back as 1."""
    live = observed.workload(role)
    if live is None or live.owner != FIELD_MANAGER:
        return None
    return live.replicas or 1


CONTEST_SECONDS = 300.0
"""A write so soon after a repair means another owner."""
RELEASE_SECONDS = 3600.0
"""Time for which a number is left alone before the operator repairs it again."""


@dataclass(slots=True)
class ReplicaOwnership:
    """Ownership of one role's number, as this process has seen it."""

    generation: int = 0
    """Generation of the description at the last update."""
    repaired_at: float = -math.inf
    released_at: float | None = None
    """Since when it is left alone; None: it is not."""

    def update(self, overwritten: bool, generation: int, now: float) -> bool:
        """Return True if the number is to be left alone; else the caller may write it again."""
        if generation != self.generation or not overwritten:
            before = -math.inf if generation != self.generation else self.repaired_at
            self.generation, self.repaired_at, self.released_at = generation, before, None
        if not overwritten:
            return False
        if self.released_at is None and now - self.repaired_at < CONTEST_SECONDS:
            self.released_at = now
        if self.released_at is not None and now - self.released_at < RELEASE_SECONDS:
            return True
        self.repaired_at, self.released_at = now, None
        return False


ReplicaOwnerships = dict[Role, ReplicaOwnership]


def foreign_owners(
    observed: Observed, service: SpeculativeService, ownership: ReplicaOwnerships, now: float
) -> dict[Role, str]:
    """Return the roles whose number is left alone in this pass, with the manager that writes it."""
    owners = {}
    for role in roles(service):
        owner = foreign_owner(observed, service, role)
        state = ownership.setdefault(role, ReplicaOwnership())
        if state.update(bool(owner), observed.generation, now):
            owners[role] = owner
    return owners


def foreign_owner(observed: Observed, service: SpeculativeService, role: Role) -> str:
    """Return the other manager of a number that is the operator's; empty: there is none."""
    spec, live = role_spec(service, role), observed.workload(role)
    left_out = spec.scaling.mode.value == ScalingMode.STATIC and spec.replicas is None
    if live is None or left_out or live.owner == FIELD_MANAGER:
        return ""
    return live.owner
