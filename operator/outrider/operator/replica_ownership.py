"""Ownership of a role's number of replicas when another field manager has written it. Pure.

A number of the operator's that is overwritten once is repaired. A second write within minutes means
another owner, an autoscaler say, and two owners would fight for ever: the number is left alone for
an hour, or until the description is edited. This state may be lost with the process: that costs one
more repair.
"""

import math
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.manifests.desired import role_spec, roles
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed import Observed
from outrider.operator.spec.roles import ScalingMode
from outrider.operator.spec.service import SpeculativeService

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
