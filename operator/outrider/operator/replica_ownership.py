"""Whose a role's number of replicas is when somebody else has written it. Asks and writes nothing.

A number that is the operator's to write and is written over once was a slip, and is repaired. Who
writes it again within minutes is another owner of it, an autoscaler say, and two owners would fight
for ever: the number is left alone for an hour, or until the description is edited. What is kept of
this may be lost with the process: it costs one more repair.
"""

import math
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.desired import role_spec, roles
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed import Observed
from outrider.operator.spec import ScalingMode, SpeculativeService

AGAIN_SECONDS = 300.0
"""A write so soon after a repair is no slip."""
LEFT_SECONDS = 3600.0
"""For so long a number is left alone before the operator tries to have it back."""


@dataclass(slots=True)
class Contest:
    """One role's number, as this process has seen it."""

    generation: int = 0
    """Of the description, when it was last looked at."""
    repaired_at: float = -math.inf
    left_at: float | None = None
    """Since when it is left alone; None: it is not."""

    def look(self, written_over: bool, generation: int, now: float) -> bool:
        """Whether the number is to be left alone; else whoever asks may write it again."""
        if generation != self.generation or not written_over:
            before = -math.inf if generation != self.generation else self.repaired_at
            self.generation, self.repaired_at, self.left_at = generation, before, None
        if not written_over:
            return False
        if self.left_at is None and now - self.repaired_at < AGAIN_SECONDS:
            self.left_at = now
        if self.left_at is not None and now - self.left_at < LEFT_SECONDS:
            return True
        self.repaired_at, self.left_at = now, None
        return False


Contests = dict[Role, Contest]


def left_alone(
    seen: Observed, service: SpeculativeService, contests: Contests, now: float
) -> dict[Role, str]:
    """Roles whose number is left to somebody else in this pass, and to whom."""
    found = {}
    for role in roles(service):
        by, contest = writer(seen, service, role), contests.setdefault(role, Contest())
        if contest.look(bool(by), seen.generation, now):
            found[role] = by
    return found


def writer(seen: Observed, service: SpeculativeService, role: Role) -> str:
    """Who else has written a number of replicas that is the operator's; empty: nobody."""
    spec, live = role_spec(service, role), seen.workload(role)
    left_out = spec.scaling.mode.value == ScalingMode.STATIC and spec.replicas is None
    if live is None or left_out or live.owner == FIELD_MANAGER:
        return ""
    return live.owner
