"""Local sources: whether each may propose nodes, by what its rows have brought and cost.

They need no draft. Pure: times come in as numbers. Leaves how many of their rows pay to the
planner, and the draft's own switch to `switch`: neither sees what the other source gains or loses.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.costs.step_costs import Seconds

HOST_SECONDS = 0.0001
"""Host time of a source in each step in which it may propose nodes: searching, ranking, and the
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
    """Node rows of one step's passes that ran any of local sources, in the order of `SOURCES`."""

    rows: list[int]
    accepted: list[int]
    total: int = 0
    """Node rows of all passes of the step."""


NO_ROWS = SourceRows([0] * len(SOURCES), [0] * len(SOURCES))
"""Of a step without such passes."""


@dataclass(slots=True)
class SourceSwitch:
    """Rest of one source whose rows lose time, although they were expected to pay."""

    spare: float = ADVANCE_SECONDS
    """Seconds that it may lose now."""
    rests_until: float = 0.0
    _rest: float = REST_SECONDS
    _earned: float = 0.0
    """Seconds that its rows have brought beyond their cost since its last rest."""

    def observe(self, brought: float, cost: float, spent: float, now: float) -> bool:
        """Learn from a step of `spent` seconds, of which its rows cost and brought some; return
        True if it rests from now on."""
        gain = brought - cost
        self.spare = min(self.spare + EARNED_SHARE * spent + gain, ADVANCE_SECONDS)
        self._earned += gain
        if self._earned >= ADVANCE_SECONDS:
            self._rest = REST_SECONDS
        if self.spare >= 0:
            return False
        self.rests_until = now + self._rest
        self._rest = min(2 * self._rest, MAX_REST_SECONDS)
        self.spare, self._earned = ADVANCE_SECONDS / 2, 0.0
        return True


class Lent(NamedTuple):
    """What rows of local sources did in one step, which is none of the draft's."""

    plain: float = 0.0
    """Seconds of plain decoding for the tokens that they brought, by the step costs."""
    spent: float = 0.0
    """Seconds that they took."""


NOTHING_LENT = Lent()


@dataclass(slots=True)
class LocalSources:
    """All of them, each with a switch of its own."""

    wanted: int = 0
    """Those that the policy names, a bit each in the order of `SOURCES`;"""
    on: int = 0
    """of them, those that may propose nodes now."""
    switches: dict[int, SourceSwitch] = field(
        default_factory=lambda: {at: SourceSwitch() for at in LOCAL}
    )
    lent: Lent = NOTHING_LENT
    """Of the last step."""
    _allowed: tuple[int, ...] = ()
    """Places of those that the policy names;"""
    _running: tuple[int, ...] = ()
    """of those that may propose nodes."""
    _changes_at: float = math.inf
    """When the next of the others has rested."""

    def decide(self, policy: PolicySettings, now: float) -> None:
        """Decide which may propose nodes, by a policy and their switches."""
        allowed = policy.local_sources
        self._allowed = tuple(at for at in LOCAL if SOURCES[at] in allowed)
        self.wanted, self.lent = sum(1 << at for at in self._allowed), NOTHING_LENT
        self._end_rests(now)

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
        decoding of a token by the step costs, `scale` times which it takes. A step without their
        rows, which is most of them where nothing repeats, costs their host time alone.
        """
        self.lent, ends = NOTHING_LENT, now >= self._changes_at
        lent = [] if step is NO_ROWS else _lent_by(step, costs, each)
        for at in self._running:
            plain, cost = lent[at] if lent else NOTHING_LENT
            cost += HOST_SECONDS
            ends |= self.switches[at].observe(plain * scale, cost, spent, now)
        if lent:
            self.lent = Lent(*map(sum, zip(*lent, strict=True)))
        if ends:
            self._end_rests(now)

    def _end_rests(self, now: float) -> None:
        """Note which of those that the policy names do not rest, and until when that holds."""
        rests = [self.switches[at].rests_until for at in self._allowed]
        self._changes_at = min((rest for rest in rests if rest > now), default=math.inf)
        self._running = tuple(
            at for at, rest in zip(self._allowed, rests, strict=True) if rest <= now
        )
        self.on = sum(1 << at for at in self._running)


def _lent_by(step: SourceRows, costs: Seconds, each: float) -> list[Lent]:
    """Return what each source's rows did in a step; the draft's lend nothing."""
    total = min(step.total, len(costs) - 1)
    found = [NOTHING_LENT] * len(SOURCES)
    for at in LOCAL:
        if rows := step.rows[at]:
            cost = costs.item(total) - costs.item(max(0, total - rows))
            found[at] = Lent(each * step.accepted[at], cost)
    return found
