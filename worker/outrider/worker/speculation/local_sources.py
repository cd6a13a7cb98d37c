"""Local sources: whether each may propose nodes, by what its rows have brought and cost.

They need no draft. Pure: times come in as numbers. Leaves how many of their rows pay to the
planner, and the draft's own switch to `switch`: neither sees what the other source gains or loses.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.model.step_costs import Seconds
from outrider.worker.speculation.guard import Balance

HOST_SECONDS = 0.0001
"""Host time of one source in each step in which it may propose nodes: searching, ranking, and the
calls around them on cold caches (Zen 5, a draft in its target's process: 0.57 ms a pass without,
0.68 to 0.74 with)."""
ADVANCE_SECONDS = 0.1
"""What the rows of one source may lose before anything was earned; also the most that is saved."""
EARNED_SHARE = 0.005
"""Of the time spent, what they may lose beyond that."""
REST_SECONDS, MAX_REST_SECONDS = 5.0, 320.0
"""Rest of a source that has lost more; doubles with each rest, until its rows have earned what the
first advance was."""
LOCAL = tuple(at for at, kind in enumerate(SOURCES) if kind is not SourceKind.DRAFT)
"""Places of the local sources among `SOURCES`."""


class SourceRows(NamedTuple):
    """Node rows of one step by what proposed them, in the order of `SOURCES`."""

    rows: list[int]
    accepted: list[int]


NO_ROWS = SourceRows([0] * len(SOURCES), [0] * len(SOURCES))


@dataclass(slots=True)
class SourceSwitch:
    """Rest of one source whose rows lose time, although they were expected to pay."""

    spare: float = ADVANCE_SECONDS
    """Seconds that it may lose now."""
    rests_until: float = 0.0
    _rest: float = REST_SECONDS
    _earned: float = 0.0
    """Seconds that its rows have brought beyond their cost since its last rest."""

    def observe(self, brought: float, cost: float, spent: float, now: float) -> None:
        """Learn from a step of `spent` seconds, of which its rows cost and brought some."""
        balance = self.spare + EARNED_SHARE * spent + brought - cost
        self.spare = min(balance, ADVANCE_SECONDS)
        self._earned += brought - cost
        if self._earned >= ADVANCE_SECONDS:
            self._rest = REST_SECONDS
        if self.spare < 0:
            self.rests_until = now + self._rest
            self._rest = min(2 * self._rest, MAX_REST_SECONDS)
            self.spare, self._earned = ADVANCE_SECONDS / 2, 0.0


@dataclass(slots=True)
class LocalSources:
    """All of them, each with a switch of its own."""

    wanted: bool = False
    """True if the policy names any."""
    on: int = 0
    """Those that may propose nodes now, a bit each in the order of `SOURCES`."""
    switches: dict[int, SourceSwitch] = field(
        default_factory=lambda: {at: SourceSwitch() for at in LOCAL}
    )
    lent: Balance = field(default_factory=Balance)
    """What they brought and cost in the last step, which is none of the draft's."""

    def host_seconds(self, at: int) -> float:
        """Return the host time that a source took in the last step."""
        return HOST_SECONDS if self.on >> at & 1 else 0.0

    def observe(
        self,
        step: SourceRows,
        costs: Seconds,
        each: float,
        scale: float,
        spent: float,
        now: float,
    ) -> None:
        """Learn what their rows brought in a step of `spent` seconds.

        `costs` [k + 1] seconds of its pass with 0, 1, … k node rows; `each`: seconds of plain
        decoding of a token by the step costs, `scale` times which it takes.
        """
        lent, total = Balance(), min(sum(step.rows), len(costs) - 1)
        for at, switch in self.switches.items():
            rows, brought, cost = step.rows[at], each * step.accepted[at], 0.0
            if rows:
                cost = costs.item(total) - costs.item(max(0, total - rows))
            switch.observe(brought * scale, cost + self.host_seconds(at), spent, now)
            lent.plain += brought
            lent.spent += cost
        self.lent = lent

    def decide(self, policy: PolicySettings, now: float) -> None:
        """Decide which may propose nodes, by a policy and their switches."""
        allowed = policy.local_sources
        self.wanted = bool(allowed)
        if not allowed:
            self.lent = Balance()
        self.on = sum(
            1 << at
            for at, switch in self.switches.items()
            if SOURCES[at] in allowed and now >= switch.rests_until
        )
