"""Planners of `nightjar` that name a number of draft tokens, and the selector that obeys them.

The product has one planner, which picks rows by their worth. A planner that names a number waits
until trees are as deep, and has the draft rest where the number is 0. `bandit` has the one
of the paper.
"""

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import Seconds, StepCosts
from outrider.worker.speculation.planner import Goodput, NodeCandidates, RowPlan
from outrider.worker.speculation.switch_costs import SwitchCosts
from outrider.worker.speculation.wait import (
    MAX_OVERTIME,
    MAX_SECONDS,
    Wait,
    WaitPolicy,
    WaitPolicyByBatch,
)
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence as RunningSequence

MAX_UNANSWERED = 3
"""Waits for a depth that may be given up in a row before there are none until the draft grows
again."""


class FixedPlanner(Goodput):
    """Gives each sequence the same number of draft tokens; a subclass says how many."""

    def __init__(self, plain_rate: float, awaited: int) -> None:
        super().__init__(plain_rate)
        self.awaited = awaited
        """Draft tokens of each sequence in the next pass, and the depth that it waits for."""
        self.lag = 0
        """Most tokens that the draft of a sequence lacks, while drafting rests."""

    @property
    def wants_drafts(self) -> bool:
        """True unless the number is 0."""
        return self.awaited > 0

    def best_of_each(self, candidates: list[NodeCandidates], costs: Seconds) -> RowPlan:
        """Plan the number for each sequence, fewer where a pass is full."""
        room, rows, value = len(costs) - 1, [], 0.0
        for one in candidates:
            count = min(self.awaited, len(one.reach), room)
            room -= count
            rows.append(count)
            value += sum(one.reach[:count].tolist())
        self.choice = Choice.ROWS_PAY if any(rows) else Choice.NO_NODES
        return RowPlan(rows, value - self.rate * costs.item(sum(rows)))


class Entry(NamedTuple):
    """Draft tokens of each request while at least `first` run."""

    first: int
    draft_tokens: int


class Table(FixedPlanner):
    """Takes the number from a table by running requests.

    vLLM's `num_speculative_tokens_per_batch_size`.
    """

    def __init__(self, plain_rate: float, entries: Sequence[Entry]) -> None:
        """`entries`: by rising `first`, from 1 on."""
        super().__init__(plain_rate, entries[0].draft_tokens)
        self._firsts = [entry.first for entry in entries]
        self._tokens = [entry.draft_tokens for entry in entries]

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan the table's rows for each sequence."""
        at = bisect.bisect_right(self._firsts, len(candidates)) - 1
        self.awaited = min(self._tokens[at], max_rows)
        return self.best_of_each(candidates, costs)


@dataclass(slots=True)
class DepthWait(WaitPolicy):
    """Wait policy that waits for a depth."""

    unanswered: int = 0
    """Waits that were given up since the draft last grew."""

    def saw_latency(self, seconds: float) -> None:
        """Learn the time from a commit to the first growth that knows it."""
        WaitPolicy.saw_latency(self, seconds)
        self.unanswered = 0

    def should_hold(self, growths: int, value: float, rate: float, now: float) -> bool:
        """Return True while a step waits for so many growths at most; 0: the tree is as deep.

        It waits for no longer than so many growths mostly take, and not for a draft that has left
        several such waits in a row unanswered. `value` and `rate` as in `should_wait`.
        """
        if growths > 0 and self._wait is None and self.unanswered < MAX_UNANSWERED:
            usual = self.latency + (growths - 1) * self.period
            until = now + min(MAX_SECONDS, MAX_OVERTIME * usual)
            self._wait = Wait(now, until, value, value, rate, 0.0)
        if self._wait is None:
            return False
        self._wait.latest = value
        if growths > 0 and now < self._wait.until:
            return True
        self.unanswered += growths > 0
        self.stop(value, rate, now)
        return False


MakePlanner = Callable[[float, SwitchCosts], FixedPlanner]
"""Makes a planner from the rate of plain decoding and the prices of returns to drafting."""


@dataclass(slots=True)
class FixedSelector(RowSelector):
    """Selects as many node rows as a `FixedPlanner` names; 0 sends the draft away."""

    def decide_drafting(self) -> None:
        """Decide whether drafts should grow, by policy, switch and planner."""
        self.away = isinstance(self.planner, FixedPlanner) and not self.planner.wants_drafts
        RowSelector.decide_drafting(self)

    @property
    def choice(self) -> Choice:
        """Why the last step ran the node rows that it did."""
        return self.planner.choice if self.policy.speculate else Choice.DISABLED

    def _follow_rest(self, sequences: list[RunningSequence]) -> None:
        RowSelector._follow_rest(self, sequences)
        self._fixed.lag = self._rest_lag

    def _waits(self, *step: object) -> bool:
        self.decide_drafting()  # the planner may have changed its mind
        return RowSelector._waits(self, *step)  # type: ignore[arg-type]

    def _growth_pays(self, growing: list[RunningSequence], value: float, now: float) -> bool:
        policy, awaited = self.wait_policy.present, self._fixed.awaited
        assert isinstance(policy, DepthWait)
        missing = any(self._lacks_depth(sequence, awaited) for sequence in growing)
        return policy.should_hold(awaited if missing else 0, value, self.planner.rate, now)

    def _lacks_depth(self, sequence: RunningSequence, awaited: int) -> bool:
        """True if its tree is not as deep as the planner asks, and has not grown so often."""
        wanted = min(awaited, self.policy.depth, sequence.remaining - 1)
        if sequence.growths >= wanted:
            return False
        return int(sequence.mirror.depth.max(initial=0)) < wanted

    @property
    def _fixed(self) -> FixedPlanner:
        assert isinstance(self.planner, FixedPlanner)
        return self.planner


def starting(make: MakePlanner) -> Callable[..., RowSelector]:
    """Return what makes selectors with such a planner, as `RowSelector.start`."""

    def start(
        costs: StepCosts,
        policy: PolicySettings,
        row_capacity: int,
        now: float,
        wait_policy: WaitPolicyByBatch,
        host_seconds: float = 0.0,
    ) -> RowSelector:
        serial = wait_policy.present.looks_further
        waits = WaitPolicyByBatch(DepthWait.serial if serial else DepthWait)
        selector = FixedSelector.start(costs, policy, row_capacity, now, waits, host_seconds)
        selector.planner = make(selector.planner.plain_rate, selector.switch_costs)
        selector.decide_drafting()
        return selector

    return start
