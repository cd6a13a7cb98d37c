"""Local sources: whether each may propose nodes, by what its rows have brought and cost.

They need no draft. Pure: times come in as numbers. Leaves how many of their rows pay to the
planner, and the draft's own switch to `switch`, which does not see what they gain or lose.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.gain import Budget

HOST_SECONDS = 0.0001
"""Host time of a source in each step in which it may propose nodes: searching, ranking, and the
calls around them on cold caches (Zen 5, a draft in its target's process: 0.57 ms a pass without,
0.68 to 0.74 with)."""
ADVANCE_TOKENS, EARNED_SHARE = 32.0, 0.005
"""Budget of the rows of one source: plain tokens that they may lose before any was earned, and the
share of the time. With 0.1 s in their place Qwen2.5-Coder 1.5B, of 60 ms a token, lost its text as
a source for 17 s by ten wrong guesses of seven rows, just before an edit of code that gains 8."""
LOCAL = tuple(at for at, kind in enumerate(SOURCES) if kind is not SourceKind.DRAFT)
"""Places of the local sources among `SOURCES`."""


class SourceRows(NamedTuple):
    """Node rows of one step's passes that ran any of local sources, in the order of `SOURCES`."""

    rows: list[int]
    accepted: list[int]
    total: int = 0
    """Node rows of all passes of the step."""


NO_ROWS = SourceRows([0] * len(SOURCES), [0] * len(SOURCES))
"""Rows of a step without passes that ran local sources."""


class LocalShare(NamedTuple):
    """What rows of local sources did in one step, which is none of the draft's."""

    plain: float = 0.0
    """Seconds of plain decoding for the tokens that they brought, by the step costs."""
    spent: float = 0.0
    """Seconds that they took."""


NO_SHARE = LocalShare()


@dataclass(slots=True)
class LocalSources:
    """All of them. One whose rows lose time, although they were expected to pay, rests until its
    budget is earned back."""

    wanted: int = 0
    """Sources that the policy names, a bit each in the order of `SOURCES`."""
    on: int = 0
    """Named sources that may propose nodes now, a bit each in the order of `SOURCES`."""
    budgets: dict[int, Budget] = field(
        default_factory=lambda: {at: Budget(EARNED_SHARE, ADVANCE_TOKENS) for at in LOCAL}
    )
    """In tokens of plain decoding."""
    share: LocalShare = NO_SHARE
    """Work of their rows in the last step."""
    _allowed: tuple[int, ...] = ()
    """Places of those that the policy names."""

    def decide(self, policy: PolicySettings) -> None:
        """Follow a policy."""
        allowed = policy.local_sources
        self._allowed = tuple(at for at in LOCAL if SOURCES[at] in allowed)
        self.wanted, self.share = sum(1 << at for at in self._allowed), NO_SHARE
        self._turn_on()

    def observe(
        self, step: SourceRows, costs: Seconds, each: float, scale: float, spent: float
    ) -> None:
        """Learn what their rows brought in a step of `spent` seconds.

        `costs` [k + 1] seconds of its pass with 0, 1, … k node rows; `each`: seconds of plain
        decoding of a token by the step costs, `scale` times which it takes. A step without their
        rows, which is most of them where nothing repeats, costs their host time alone.
        """
        self.share = NO_SHARE
        shares, token = [] if step is NO_ROWS else _shares_of(step, costs, each), scale * each
        for at in self._allowed:
            plain, cost = shares[at] if shares else NO_SHARE
            cost += HOST_SECONDS * (self.on >> at & 1)
            self.budgets[at].add(spent / token, (plain * scale - cost) / token)
        if shares:
            self.share = LocalShare(*map(sum, zip(*shares, strict=True)))
        self._turn_on()

    def _turn_on(self) -> None:
        """Note which of those that the policy names do not rest."""
        self.on = sum([1 << at for at in self._allowed if not self.budgets[at].rests])


def _shares_of(step: SourceRows, costs: Seconds, each: float) -> list[LocalShare]:
    """Return what each source's rows did in a step; the draft's has none."""
    total = min(step.total, len(costs) - 1)
    found = [NO_SHARE] * len(SOURCES)
    for at in LOCAL:
        if rows := step.rows[at]:
            cost = costs.item(total) - costs.item(max(0, total - rows))
            found[at] = LocalShare(each * step.accepted[at], cost)
    return found
