"""Selection of the node rows that the next pass verifies, or of a wait for better ones.

Joins acceptance, planner, switch and wait policy, each a file of `speculation`. Leaves the costs of
passes to `pass_costs`. Knows nothing of KV or links.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.speculation.planner import (
    NO_CANDIDATES,
    Goodput,
    NodeCandidates,
    RowPlan,
    best_count,
)
from outrider.worker.speculation.switch import Drafting
from outrider.worker.speculation.switch_costs import Return, SwitchCosts
from outrider.worker.speculation.wait import WaitPolicyByBatch, WantedGrowths
from outrider.worker.target.draft_switch import DraftSwitch, switch_for
from outrider.worker.target.pass_costs import PassCosts, PassCostTable, PlainCost
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import Hunt, candidates, search
from outrider.worker.tree.growth import Ints

NO_NODES = np.zeros(0, np.int32)
FULL_SHARE = 0.9
"""A draft whose tree holds this share of its nodes ahead is not waited for."""
SLOWDOWN_MEMORY = 0.98
"""Weight of the past in the running mean of `slowdown`."""
CHOICE_BY_STATE = {
    Drafting.OFF: Choice.SWITCHED_OFF,
    Drafting.PROBE: Choice.PROBE,
    Drafting.CHECK: Choice.CHECK,
}
PROMPT_WAIT_SHARE = 1.0
"""Longest wait for growth before a pass that computes prompts, over the time of the pass."""


class Selection(NamedTuple):
    """The node rows of one pass, and its times by the step costs."""

    nodes: list[Ints]
    """int32[rows] for each sequence, in the order given: indices into its mirror, parents first."""
    expected_seconds: float
    """Expected seconds of the pass."""
    plain: PlainCost
    """Cost of the step without nodes."""


class Look(NamedTuple):
    """A look at the tree of one sequence, before its pass or a wait for growth."""

    sequence: Sequence
    value: float
    """Value in tokens of its part of a pass with the tree as it is."""
    supplied: bool
    """True if the root began with rows that could run."""
    may_grow: bool
    """True if growth may be waited for."""


@dataclass(slots=True)
class RowSelector(DraftSwitch):
    """Selects node rows by what one target has measured of its drafts and of its own passes."""

    pass_costs: PassCostTable
    planner: Goodput
    wait_policy: WaitPolicyByBatch = field(default_factory=WaitPolicyByBatch)
    average: Calibration = field(default_factory=Calibration)
    """Over all requests: the prior of each new one."""
    slowdown: float = 1.0
    """Measured time of a pass over its step cost: drafts may share memory with the target."""
    switch_costs: SwitchCosts = field(default_factory=SwitchCosts)
    wants_any_drafts: bool = field(init=False)
    """True if drafts should grow for requests that allow it."""
    away: bool = False
    """True while the memory of the draft beside the target is lent, or on its way."""
    _sequences: int = 0
    """Of the last step that was planned."""
    behind: int = 0
    """Sequences of the last step whose drafts catch up after a rest."""
    _rest_lag: int = 0
    """Most tokens that a draft lacks, while drafting rests; else 0."""
    _return: Return | None = None
    """The return to drafting that goes on."""
    _costs: PassCosts = field(default_factory=lambda: PassCosts(np.zeros(1), PlainCost()))
    """Of the last step that was planned."""

    def __post_init__(self) -> None:
        DraftSwitch.__post_init__(self)
        self.decide_drafting()

    @classmethod
    def start(
        cls,
        costs: StepCosts,
        policy: PolicySettings,
        row_capacity: int,
        now: float,
        wait_policy: WaitPolicyByBatch | None = None,
        host_seconds: float = 0.0,
    ) -> "RowSelector":
        """Make a selector without measurements; default waits are those of a separate draft."""
        return cls(
            pass_costs=PassCostTable(costs, row_capacity, host_seconds),
            policy=policy,
            switch=switch_for(policy, now),
            planner=Goodput(1.0 / costs.seconds(1, 1)),
            wait_policy=wait_policy or WaitPolicyByBatch(),
        )

    @property
    def row_seconds(self) -> float:
        """Seconds that a node row adds to a pass like the last, on average over the first few."""
        scaled = self._costs.scaled
        few = min(8, len(scaled) - 1)
        return float(scaled[few] - scaled[0]) / few if few > 0 else 0.0

    @property
    def costs(self) -> StepCosts:
        """Step costs of the target."""
        return self.pass_costs.costs

    @property
    def row_capacity(self) -> int:
        """Rows that one pass can hold."""
        return self.pass_costs.row_capacity

    @property
    def drafting(self) -> str:
        """State of drafting: the switch's, `off` where the draft's memory is away, `disabled` where
        the policy forbids it."""
        if not self.policy.drafts_allowed:
            return "disabled"
        if self.away:
            return Drafting.OFF.value
        return self.switch.state.value

    @property
    def choice(self) -> Choice:
        """Why the last step ran the node rows that it did."""
        if not self.policy.speculate:
            return Choice.DISABLED
        own = self.planner.choice
        of_others = own is Choice.ROWS_PAY or not self.policy.drafts_allowed
        if of_others and not self.wants_any_drafts:
            return own
        if self.away:
            return Choice.MEMORY_LENT
        if self.switch.state is Drafting.ON:
            return own
        return CHOICE_BY_STATE[self.switch.state]

    @property
    def planned(self) -> str:
        """Planner's choice, as in `Finished`."""
        return self.choice.value

    @property
    def drafting_rests(self) -> bool:
        """True if drafting is off for longer than a check of the switch."""
        return self.switch.state is Drafting.OFF or not self.policy.drafts_allowed

    def decide_drafting(self) -> None:
        """Decide whether drafts should grow, by what policy and switch say now."""
        self.wants_any_drafts = (
            self.policy.drafts_allowed and not self.away and self.switch.drafting
        )

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""
        DraftSwitch.restart(self, now)
        self.decide_drafting()

    def set_away(self, away: bool, now: float) -> None:
        """Note that the draft has lost its memory, or has it again."""
        self.away = away
        if away:
            self.wait_policy.break_off(now)
        self.decide_drafting()

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy, as the switch does."""
        DraftSwitch.set_policy(self, policy, now)
        self.decide_drafting()

    def new_calibration(self) -> Calibration:
        """Make the calibration of a new request, with the average as its prior."""
        return Calibration(self.average)

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""
        return self.wants_any_drafts and submit.speculate

    def search(self, sequence: Sequence) -> None:
        """Let local sources add to a sequence's tree, if they may and have read its text."""
        sequence.searched = sequence.length
        on = self.local.on & sequence.sources
        if on and sequence.length > sequence.prompt_length:
            search(sequence.tree, on, self.policy.max_rows, self._depth_of(sequence))
            sequence.unjudged = True

    def _depth_of(self, sequence: Sequence) -> int:
        """Return how deep a node of a sequence may lie for its row to add a token."""
        return min(self.policy.depth, sequence.most_tokens - sequence.length - 1)

    def wanted_growths(self, sequence: Sequence, now: float) -> WantedGrowths | None:
        """Return the growths that the next roots of a sequence that is alone are waited for; None
        if what is learnt soon may change how its draft grows."""
        settled = self._return is None and self.behind == 0 and self._rest_lag == 0
        policy = self.wait_policy.of(1, now)
        if policy.ongoing is not None or not settled or not self.wants_drafts(sequence.submit):
            return None
        return policy.wanted

    def hunt(self, sequence: Sequence) -> Hunt:
        """Return what local sources may add to the tree of a sequence that is alone, and what pays
        now."""
        return Hunt(
            self.policy.max_rows,
            self._depth_of(sequence),
            self.sources(sequence.submit),
            self.price(1, 0, sequence.length).scaled,
            self.planner.rate,
        )

    def price(self, sequences: int, prefill_rows: int, context: int) -> PassCosts:
        """Return the costs of the next pass, which decodes so many sequences of `context` tokens on
        average and runs `prefill_rows`."""
        known = self.pass_costs.of(self.policy.max_rows, sequences, prefill_rows, context)
        self._sequences, self._costs = sequences, known.at(self.slowdown)
        self.planner.plain_rate = sequences / known.plain.step
        return known

    def select(
        self,
        sequences: list[Sequence],
        prefill_rows: int,
        now: float,
        may_wait: bool,
    ) -> Selection | None:
        """Select the node rows of the next pass, which decodes `sequences` and runs `prefill_rows`.

        None if growth may be waited for and is worth it.
        """
        if not sequences:
            self.wait_policy.break_off(now)
            return Selection([], 0.0, PlainCost())
        count, max_rows = len(sequences), self.policy.max_rows
        costs = self.price(count, prefill_rows, sum([s.length for s in sequences]) // count)
        if self._rest_lag or not self.wants_any_drafts:
            self._follow_rest(sequences)
        trees = [self._candidates(sequence) for sequence in sequences]
        plan = self.planner.plan([best or NO_CANDIDATES for best in trees], costs.scaled, max_rows)
        if prefill_rows and len(costs.scaled) <= count:  # prompts leave no room for a node each
            may_wait = False
        if self._waits(sequences, trees, plan, costs, now, may_wait):
            wait = self.wait_policy.ongoing
            if prefill_rows and wait is not None:
                wait.until = min(wait.until, wait.since + PROMPT_WAIT_SHARE * costs.root)
            return None
        nodes = [
            best.nodes[:k].copy() if k and best else NO_NODES  # growth during the pass ranks afresh
            for best, k in zip(trees, plan.rows, strict=True)
        ]
        return Selection(nodes, costs.scaled.item(sum(plan.rows)), costs.plain)

    def saw_latency(self, seconds: float) -> None:
        """Learn how long after a commit the first growth that knows it comes."""
        self.wait_policy.present.saw_latency(seconds)

    def saw_period(self, seconds: float) -> None:
        """Learn how long after growth of a root the next comes."""
        self.wait_policy.present.saw_period(seconds)

    def saw_first_growth(self, sequence: Sequence) -> None:
        """Learn what the first growth of a root is worth, also where it was not waited for.

        Before local sources have looked for nodes the root is not judged: the plan that judges it
        shows what growth is worth.
        """
        if sequence.needs_search or sequence.unjudged:
            return
        policy = self.wait_policy.present
        best = self._candidates(sequence) if policy.wants_value(sequence.supplied) else None
        if best is None:
            return
        reach, rate = best.reach[: self.policy.max_rows], self.planner.rate
        _, value = best_count(reach, self._costs.scaled, rate)
        policy.saw_value(sequence.supplied, 1, value + rate * self._costs.root)

    def observe(
        self, tokens: int, expected: float, forward: float, spent: float, plain: float, now: float
    ) -> None:
        """Learn the seconds of a step that committed `tokens`.

        `expected` and `forward`: of its pass, by the step costs and measured; `spent`: of all of
        it; `plain`: of plain decoding for the same tokens.
        """
        self.learn_step(tokens, expected, forward, spent)
        if self._return is not None:
            self._learn_return(plain, spent)
        if self.policy.drafts_allowed and not self.away:
            self.saw_drafting(plain, spent, now, self._sequences)
            self.decide_drafting()
        else:
            self.saw_plain(plain, spent)

    def learn_step(self, tokens: int, expected: float, forward: float, spent: float) -> None:
        """Learn what a step wrote, and how long its pass took; arguments as of `observe`."""
        if self.policy.speculate:
            self.planner.learn(tokens, spent)
        if expected > 0:
            ratio = forward / (expected / self.slowdown)
            self.slowdown += (1 - SLOWDOWN_MEMORY) * (min(max(ratio, 0.5), 4.0) - self.slowdown)

    def observe_sources(self, step: SourceRows, each: float, spent: float, now: float) -> None:
        """Learn what local sources brought in a step of `spent` seconds, before `observe`.

        `each`: seconds of plain decoding of a token.
        """
        self.local.observe(step, self._costs.scaled, each, self.switch.scale, spent, now)

    def _follow_rest(self, sequences: list[Sequence]) -> None:
        """Note how far drafts that rest are behind, and when they take up growing again."""
        drafted = [sequence for sequence in sequences if sequence.submit.speculate]
        if not self.wants_any_drafts:
            self._return, count = None, len(drafted)
            self._rest_lag = max([one.lag for one in drafted], default=0)
            price = self.switch_costs.seconds(self._rest_lag, count) if count else 0.0
            self.switch.return_seconds = price
            return
        returning = [one for one in drafted if one.session is not None]
        for sequence in returning:
            _await_level(sequence)
        self._return = Return(self._rest_lag, len(returning)) if returning else None
        self._rest_lag = 0

    def _learn_return(self, plain: float, spent: float) -> None:
        """Count a step of a return to drafting; learn what it cost once all drafts are level."""
        assert self._return is not None
        balance = self._return.balance
        balance.plain += plain
        balance.spent += spent
        if self.behind == 0:
            lost = balance.loss(self.switch.scale)
            self.switch_costs.learn(self._return.lag, self._return.sequences, lost)
            self._return = None

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the present wait ends; None if there is none."""
        wait = self.wait_policy.ongoing
        return None if wait is None else max(0.0, wait.until - now)

    def speculates(self, sequence: Sequence) -> bool:
        """True if node rows of a sequence could add a token."""
        useful = sequence.prompt_length < sequence.length < sequence.most_tokens - 1
        return useful and self.sources(sequence.submit) != 0

    def _candidates(self, sequence: Sequence) -> NodeCandidates | None:
        """Return a sequence's candidates, best first; None if no node row could add a token."""
        if not self.speculates(sequence):
            return None
        if len(sequence.mirror) == 0:
            return NO_CANDIDATES
        sources = self.sources(sequence.submit)
        return sequence.views.candidates(candidates(sequence.tree, sequence.remaining, sources))

    def _waits(
        self,
        sequences: list[Sequence],
        trees: list[NodeCandidates | None],
        plan: RowPlan,
        costs: PassCosts,
        now: float,
        may_wait: bool,
    ) -> bool:
        """True if growth is worth a wait."""
        rows = sum(plan.rows)
        price = self.planner.rate * (costs.scaled.item(rows) - costs.root) / rows if rows else 0.0
        looks = []
        self.behind = 0
        for sequence, best, k in zip(sequences, trees, plan.rows, strict=True):
            if best is None:
                continue
            value = sum(best.reach[:k].tolist()) - price * k if k else 0.0
            supplied = k > 0 if sequence.unjudged else sequence.supplied
            sequence.unjudged = False
            session, mirror, may_grow = sequence.session, sequence.mirror, False
            if session is not None and session.level_at is not None:
                self.behind += 1  # it grows once its draft has caught up
            elif session is not None:
                drafted = mirror.drafted if self.local.wanted else len(mirror)
                may_grow = may_wait and drafted < FULL_SHARE * session.nodes_ahead
            looks.append(Look(sequence, value, supplied, may_grow))
        return self.look(looks, len(sequences), now)

    def look(self, looks: list[Look], sequences: int, now: float) -> bool:
        """Learn what the trees of a step of so many sequences are worth; return True if growth of
        some is worth a wait."""
        policy, value = self.wait_policy.of(sequences, now), 0.0
        for one in looks:
            one.sequence.supplied = one.supplied
            policy.saw_value(one.supplied, one.sequence.growths, one.value)
            value += one.value
        growing = [one.sequence for one in looks if one.may_grow]
        growing = [one for one in growing if one.mirror.last_id] or growing  # of drafts in prefill
        if growing:
            return self._growth_pays(growing, value, now)
        policy.stop(value, self.planner.rate, now)
        return False

    def _growth_pays(self, growing: list[Sequence], value: float, now: float) -> bool:
        """True if growth of some trees is worth a wait; `value`: of a step now, in tokens."""
        since = now - max(sequence.committed_at for sequence in growing)
        roots = [(sequence.supplied, sequence.growths) for sequence in growing]
        return self.wait_policy.present.should_wait(roots, value, self.planner.rate, since, now)


def _await_level(sequence: Sequence) -> None:
    """Count a sequence as behind until its draft has grown, if its session has seen no growth yet:
    one that has just opened begins with a prefill."""
    session = sequence.session
    if session is not None and session.level_at is None and sequence.mirror.last_id == 0:
        session.level_at = session.told
