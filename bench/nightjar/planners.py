"""Planners of `nightjar` that name a number of draft tokens, and the selector that obeys them.

The product has one planner, which picks rows by their worth. A planner that names a number waits
until trees are as deep, and has the draft rest where the number is 0. `bandit` has the one
of the paper.
"""

import bisect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import Seconds, StepCosts
from outrider.worker.speculation.planner import NodeCandidates, RowPlan
from outrider.worker.target.pass_costs import PassCosts, PassCostTable
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence as RunningSequence

MAX_UNANSWERED = 3
"""Waits for a depth that may be given up in a row before there are none until the draft grows
again."""
MAX_OVERTIME, MAX_SECONDS = 4.0, 0.1
"""A wait is given up after this many times the expected time, and after so many seconds."""


class FixedPlanner:
    """Gives each sequence the same number of draft tokens; a subclass says how many."""

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        """Draft tokens of each sequence in the next pass, and the depth that it waits for."""
        self.return_seconds = 0.0
        """What it costs to take up drafting again, while it rests."""

    @property
    def wants_drafts(self) -> bool:
        """True unless the number is 0."""
        return self.awaited > 0

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan the rows of a pass; `costs` [k + 1] its seconds with 0, 1, … k node rows."""
        raise NotImplementedError

    def learn(self, tokens: float, seconds: float) -> None:
        """Learn what one step wrote over all sequences, and how long it took."""

    def best_of_each(self, candidates: list[NodeCandidates], costs: Seconds) -> RowPlan:
        """Plan the number for each sequence, fewer where a pass is full."""
        room, rows = len(costs) - 1, []
        for one in candidates:
            rows.append(min(self.awaited, len(one.reach), room))
            room -= rows[-1]
        choice = Choice.ROWS_PAY if any(rows) else Choice.NO_NODES
        return RowPlan(rows, choice, candidates[0].reach)


class Entry(NamedTuple):
    """Draft tokens of each request while at least `first` run."""

    first: int
    draft_tokens: int


class Table(FixedPlanner):
    """Takes the number from a table by running requests.

    vLLM's `num_speculative_tokens_per_batch_size`.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        """`entries`: by rising `first`, from 1 on."""
        super().__init__(entries[0].draft_tokens)
        self._firsts = [entry.first for entry in entries]
        self._tokens = [entry.draft_tokens for entry in entries]

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan the table's rows for each sequence."""
        at = bisect.bisect_right(self._firsts, len(candidates)) - 1
        self.awaited = min(self._tokens[at], max_rows)
        return self.best_of_each(candidates, costs)


MakePlanner = Callable[[], FixedPlanner]


@dataclass(slots=True)
class FixedSelector(RowSelector):
    """Selects as many node rows as a `FixedPlanner` names; 0 sends the draft away."""

    _: KW_ONLY
    planner: FixedPlanner
    unanswered: int = 0
    """Waits for a depth that were given up since the draft last grew."""

    def decide_drafting(self) -> None:
        """Decide whether drafts should grow, by policy, switch and planner."""
        self.away = not self.planner.wants_drafts
        RowSelector.decide_drafting(self)

    @property
    def choice(self) -> Choice:
        """Why the last step ran the node rows that it did."""
        return self.planned_choice if self.policy.speculate else Choice.DISABLED

    def plan(self, candidates: list[NodeCandidates], costs: PassCosts) -> RowPlan:
        """Plan the planner's number for each sequence."""
        self.planner.return_seconds = self.switch.return_seconds
        plan = self.planner.plan(candidates, costs.scaled, self.policy.max_rows)
        self.decide_drafting()  # the planner may have changed its mind
        return plan

    def learn_step(self, expected: float, forward: float, plain: float, spent: float) -> None:
        """Learn what a step wrote, in tokens of plain decoding; let the planner learn it too."""
        RowSelector.learn_step(self, expected, forward, plain, spent)
        self.planner.learn(plain * self.plain_rate, spent)

    def _patience(
        self, growing: list[RunningSequence], plan: RowPlan, costs: PassCosts, now: float
    ) -> float:
        """Wait until trees are as deep as planned, for no longer than so many growths mostly take,
        and not for a draft that has left several such waits in a row unanswered."""
        awaited, load = self.planner.awaited, self.account.present
        if any(sequence.growths > 0 for sequence in growing):
            self.unanswered = 0
        if not any(self._lacks_depth(sequence, awaited) for sequence in growing):
            return 0.0
        if self.unanswered >= MAX_UNANSWERED:
            return 0.0
        usual = load.latency + (awaited - 1) * load.period
        since = now if self.wait is None else self.wait.since
        until = since + min(MAX_SECONDS, MAX_OVERTIME * usual)
        self.unanswered += now >= until
        return until - now

    def _lacks_depth(self, sequence: RunningSequence, awaited: int) -> bool:
        """True if its tree is not as deep as the planner asks, and has not grown so often."""
        wanted = min(awaited, self.policy.depth, sequence.remaining - 1)
        if sequence.growths >= wanted:
            return False
        return int(sequence.mirror.depth.max(initial=0)) < wanted


def starting(make: MakePlanner) -> Callable[..., RowSelector]:
    """Return what makes selectors with such a planner, as `RowSelector.start`."""

    def start(
        costs: StepCosts, policy: PolicySettings, row_capacity: int, host_seconds: float = 0.0
    ) -> RowSelector:
        table = PassCostTable(costs, row_capacity, host_seconds)
        return FixedSelector(policy, pass_costs=table, planner=make())

    return start
