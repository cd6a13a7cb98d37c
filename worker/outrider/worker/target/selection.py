"""Selection of the node rows that the next pass verifies, or of a wait for better ones.

Joins acceptance, planner, switch and waits, each a file of `speculation`; what all of them ask is
the gain account. Leaves the costs of passes to `pass_costs`. Knows nothing of KV or links.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.speculation.planner import NO_CANDIDATES, NodeCandidates, RowPlan, plan_rows
from outrider.worker.speculation.switch import PROBE_SECONDS, Drafting
from outrider.worker.speculation.wait import MOST_GROWTHS, patience, worth_of_growth, worth_of_text
from outrider.worker.target.draft_switch import DraftSwitch
from outrider.worker.target.pass_costs import PassCosts, PassCostTable, PlainCost
from outrider.worker.target.request import TargetSession
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import SearchTerms, candidates, search
from outrider.worker.tree.growth import Ints

NO_NODES = np.zeros(0, np.int32)
FULL_SHARE = 0.9
"""A draft whose tree holds this share of its nodes ahead is not waited for."""
CHOICE_BY_STATE = {
    Drafting.OFF: Choice.SWITCHED_OFF,
    Drafting.PROBE: Choice.PROBE,
    Drafting.CHECK: Choice.CHECK,
}
ENOUGH_GUESSES = 16
"""First guesses of all requests after which their share of right ones can end drafting. By the one
that is assumed before, Qwen2.5-Coder 1.5B with its 0.5B should gain 1.04 on code, where it gains
1.4, and did not draft in its first answers."""
PROMPT_WAIT_SHARE = 1.0
"""Longest wait for growth before a pass that computes prompts, over the time of the pass."""


class Selection(NamedTuple):
    """The node rows of one pass, and its times by the step costs."""

    nodes: list[Ints]
    """Node rows of each sequence, in the order given, int32[rows]: indices into its mirror, parents
    before their children."""
    expected_seconds: float
    """Expected seconds of the pass."""
    plain: PlainCost
    """Cost of the step without nodes."""


class Wait(NamedTuple):
    """A wait for growth, before a step."""

    since: float
    until: float


@dataclass(slots=True)
class RowSelector(DraftSwitch):
    """Selects node rows by what one target has measured of its drafts and of its own passes."""

    pass_costs: PassCostTable
    average: Calibration = field(default_factory=Calibration)
    """Over all requests: the prior of each new one."""
    wants_any_drafts: bool = field(init=False)
    """True if drafts should grow for requests that allow it."""
    away: bool = False
    """True while the memory of the draft beside the target is lent, or on its way."""
    plain_rate: float = 1.0
    """Tokens per second of plain decoding of the sequences of the last step, by step costs."""
    planned_choice: Choice = Choice.NO_NODES
    """Why the last plan is what it is."""
    wait: Wait | None = None
    """The present wait for growth."""
    waited_seconds: float = 0.0
    """Seconds of all waits that have ended."""
    behind: int = 0
    """Sequences of the last step whose drafts catch up after a rest."""
    text_seconds: Callable[[list[Sequence]], float] = lambda sequences: 0.0
    """Time that drafts take from the target to compute the texts of sequences, before any of their
    trees can grow."""
    _rests: bool = False
    """True while drafting rests."""
    _costs: PassCosts = field(default_factory=lambda: PassCosts(np.zeros(1), PlainCost()))
    """Costs of the last step that was planned."""

    def __post_init__(self) -> None:
        DraftSwitch.__post_init__(self)
        self.account.predict = self.predicted_gain
        self.decide_drafting()

    @classmethod
    def start(
        cls,
        costs: StepCosts,
        policy: PolicySettings,
        row_capacity: int,
        host_seconds: float = 0.0,
    ) -> "RowSelector":
        """Make a selector without measurements."""
        return cls(policy, pass_costs=PassCostTable(costs, row_capacity, host_seconds))

    @property
    def rate(self) -> float:
        """λ, the tokens that a second of the target is worth (docs/decisions/0006)."""
        return self.plain_rate * self.account.pace

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
        own = self.planned_choice
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

    def follow(self, running: list[Sequence], now: float) -> None:
        """Decide by the sequences that run from now on, one at least."""
        if not self.policy.drafts_allowed or self.away:
            self.account.enter(len(running))
            return
        if self.switch.state is not Drafting.ON:
            costs, drafted = self.account.return_costs, [s for s in running if s.submit.speculate]
            missed = [min(s.lag, s.length - s.prompt_length) for s in drafted]
            self.switch.return_seconds = costs(sum([s.lag for s in drafted]))
            self.switch.missed_seconds = costs(sum(missed))
        self.enter(len(running), now)
        self.decide_drafting()

    def predicted_gain(self, sequences: int) -> float:
        """Return what the best number of draft tokens should gain for so many sequences, by step
        costs and how often first guesses are right; infinity before that was seen often enough."""
        if self.average.curves.first.trials.sum() < ENOUGH_GUESSES:
            return math.inf
        known = self.pass_costs.of(self.policy.max_rows, sequences, 0, 0)
        first, other = self.average.first.tolist()
        growth = self.account.growth_costs
        growth_seconds = 0.0 if growth is None else growth(sequences)
        tokens, reach, best = 1.0, first, 0.0
        for depth in range((len(known.measured) - 1) // sequences + 1):
            more = known.measured.item(depth * sequences) - known.measured.item(0)
            seconds = known.plain.step + more + depth * growth_seconds
            best = max(best, tokens * known.plain.step / seconds)
            tokens, reach = tokens + reach, reach * other
        return best

    def set_away(self, away: bool, now: float) -> None:
        """Note that the draft has lost its memory, or has it again."""
        self.away = away
        if away:
            self.end_wait(now)
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
        on = self.local_sources(sequence.submit) & sequence.sources
        if on and sequence.length > sequence.prompt_length:
            depth = min(self.policy.depth, sequence.remaining - 1)
            search(sequence.tree, on, self.policy.max_rows, depth)

    @property
    def is_level(self) -> bool:
        """True if no draft has to catch up."""
        return self.behind == 0 and not self._rests

    def search_terms(self, sequence: Sequence) -> SearchTerms:
        """Return what local sources may add to the tree of a sequence that is alone, and what pays
        now."""
        return SearchTerms(
            self.policy.max_rows,
            self.policy.depth,
            self.sources(sequence.submit),
            self.price(1, 0, sequence.length).scaled,
            self.rate,
        )

    def price(self, sequences: int, prefill_rows: int, context: int) -> PassCosts:
        """Return the costs of the next pass, which decodes so many sequences of `context` tokens on
        average and runs `prefill_rows`."""
        known = self.pass_costs.of(self.policy.max_rows, sequences, prefill_rows, context)
        self._costs = known.at(self.account.slowdown)
        self.plain_rate = sequences / known.plain.step
        return known

    def select(
        self,
        sequences: list[Sequence],
        prefill_rows: int,
        now: float,
        may_wait: bool,
        delays_prompts: bool,
    ) -> Selection | None:
        """Select the node rows of the next pass, which decodes `sequences` and runs `prefill_rows`.

        None if growth may be waited for and is worth it. `delays_prompts`: prompts wait, too.
        """
        if not sequences:
            self.end_wait(now)
            return Selection([], 0.0, PlainCost())
        count = len(sequences)
        costs = self.price(count, prefill_rows, sum([s.length for s in sequences]) // count)
        if self._rests or not self.wants_any_drafts:
            self._follow_rest(sequences)
        trees = [self._candidates(sequence) for sequence in sequences]
        plan = self.plan([best or NO_CANDIDATES for best in trees], costs)
        self.planned_choice = plan.choice
        if prefill_rows and len(costs.scaled) <= count:  # prompts leave no room for a node each
            may_wait = False
        drafted = [s for s, best in zip(sequences, trees, strict=True) if best is not None]
        growing = self._growing(drafted)
        if may_wait and growing and self._waits(growing, plan, costs, delays_prompts, now):
            return None
        nodes = [
            best.nodes[:k].copy() if k and best else NO_NODES  # the array is written again
            for best, k in zip(trees, plan.rows, strict=True)
        ]
        return Selection(nodes, costs.scaled.item(sum(plan.rows)), costs.plain)

    def plan(self, candidates: list[NodeCandidates], costs: PassCosts) -> RowPlan:
        """Plan node rows for each sequence of a pass."""
        return plan_rows(candidates, costs.scaled, self.rate, self.policy.max_rows)

    def end_wait(self, now: float) -> None:
        """End the present wait, if there is one."""
        if self.wait is not None:
            self.waited_seconds += max(0.0, now - self.wait.since)
            self.wait = None

    def observe(
        self, expected: float, forward: float, plain: float, spent: float, now: float
    ) -> None:
        """Learn the seconds of a step that drafting, or a rest from it, decided.

        `expected` and `forward`: of its pass, by the step costs and measured; `spent`: of all of
        it; `plain`: of plain decoding for the same tokens.
        """
        self.learn_step(expected, forward, plain, spent)
        if self.policy.drafts_allowed and not self.away:
            self.saw_drafting(plain, spent, now, level=self.behind == 0)
            self.decide_drafting()
        else:
            self.saw_plain(plain, spent, now)

    def learn_step(self, expected: float, forward: float, plain: float, spent: float) -> None:
        """Learn what a step wrote, and how long its pass took; arguments as of `observe`."""
        self.account.learn(plain, spent)
        if expected > 0:
            self.account.learn_pass(expected, forward)

    def observe_sources(self, step: SourceRows, each: float, spent: float) -> None:
        """Learn what local sources brought in a step of `spent` seconds, before `observe`.

        `each`: seconds of plain decoding of a token.
        """
        self.local.observe(step, self._costs.scaled, each, self.account.present.scale, spent)

    def _follow_rest(self, sequences: list[Sequence]) -> None:
        """Note whether drafts rest, and which are behind when they take up growing again."""
        self._rests = not self.wants_any_drafts
        if not self._rests:
            for sequence in sequences:
                if sequence.submit.speculate:
                    _await_level(sequence)

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the present wait ends; None if there is none."""
        return None if self.wait is None else max(0.0, self.wait.until - now)

    def speculates(self, sequence: Sequence) -> bool:
        """True if node rows of a sequence could add a token."""
        useful = sequence.prompt_length < sequence.length < sequence.most_tokens - 1
        return useful and self.sources(sequence.submit) != 0

    def _candidates(self, sequence: Sequence) -> NodeCandidates | None:
        """Return a sequence's candidates, best first; None if no node row could add a token."""
        if not self.speculates(sequence):
            return None
        sources, depth = self.sources(sequence.submit), self.policy.depth
        count = candidates(sequence.tree, sequence.remaining, depth, sources)
        return sequence.views.candidates(count)

    def _growing(self, sequences: list[Sequence]) -> list[Sequence]:
        """Return the sequences whose growth may be waited for."""
        growing, self.behind = [], 0
        for sequence in sequences:
            session = sequence.session
            if session is not None and session.level_at is not None:
                self.behind += 1  # it grows once its draft has caught up
            elif session is not None and self._has_room(sequence, session):
                growing.append(sequence)
        if self.account.growth_costs is not None:
            return growing  # a draft in prefill goes on with it only while growth is waited for
        return [one for one in growing if one.mirror.last_id] or growing

    def _has_room(self, sequence: Sequence, session: TargetSession) -> bool:
        """True if a sequence's tree may grow by more than its draft has under way."""
        mirror = sequence.mirror
        drafted = mirror.drafted if sequence.sources else len(mirror)
        return drafted < FULL_SHARE * session.nodes_ahead and sequence.growths < MOST_GROWTHS

    def _waits(
        self,
        growing: list[Sequence],
        plan: RowPlan,
        costs: PassCosts,
        delays_prompts: bool,
        now: float,
    ) -> bool:
        """Return True if growth of some trees is worth a wait, and begin it or let it go on.

        One that ends in vain teaches the gain account how long growth takes at least.
        """
        until = now + self._patience(growing, plan, costs, now)
        since = now if self.wait is None else self.wait.since
        if delays_prompts:
            until = min(until, since + PROMPT_WAIT_SHARE * costs.root)
        if now >= until:
            self._give_up(growing, now)
            return False
        self.wait = Wait(since, until)
        return True

    def _give_up(self, growing: list[Sequence], now: float) -> None:
        """Learn from a wait for first growth that ended without any: it takes as long at least."""
        comes_by_itself = self.account.growth_costs is None
        if self.wait is not None and comes_by_itself and not any(one.growths for one in growing):
            self.account.saw_latency(now - max(one.committed_at for one in growing), now)

    def _patience(
        self, growing: list[Sequence], plan: RowPlan, costs: PassCosts, now: float
    ) -> float:
        """Return the seconds for which growth of some trees is waited for from now on, by
        `wait.patience`; pay for first growth that is tried although it should lose time."""
        texts = self.text_seconds(growing)
        count = 1 if texts else MOST_GROWTHS  # a text pays by what growth brings each time
        more = np.empty((count, len(growing)), np.float32)
        for at, sequence in enumerate(growing):
            more[:, at] = sequence.views.next_reaches[:count]
        price = self.rate * self.account.growth_seconds(first=False)
        worth = worth_of_growth(plan.reach, more, costs.scaled, self.rate, price)
        first = min([sequence.growths for sequence in growing]) == 0
        expected, since = self.account.growth_seconds(first), 0.0
        if texts:
            left = max([sequence.remaining for sequence in growing])
            worth = worth_of_text(worth, self.rate * expected, left)
            expected += texts
        elif self.account.growth_costs is None:
            moved = [one.committed_at if first else one.grew_at for one in growing]
            since = now - max(moved)
        if first and self.wait is None and self._tries(expected - worth / self.rate, now):
            worth = max(worth, 2 * self.rate * expected)
        return float(patience(worth, self.rate, expected, since))

    def may_try(self, now: float) -> bool:
        """True if first growth may be tried that is not expected to pay."""
        long_ago = now - self.account.present.tried_at > PROBE_SECONDS
        return long_ago or self.switch.state is Drafting.PROBE

    def _tries(self, loss: float, now: float) -> bool:
        """True if first growth is waited for although that should lose so many seconds, to see what
        it brings: it was not seen lately, or drafting is probed."""
        load = self.account.present
        if loss < 0 or not self.may_try(now):
            return False
        load.tried_at = now
        if self.switch.state is not Drafting.PROBE:
            if load.budget.spare < loss:
                return False
            load.budget.add(0.0, -loss)
        return True


def _await_level(sequence: Sequence) -> None:
    """Count a sequence as behind until its draft has grown, if its session has seen no growth yet:
    one that has just opened begins with a prefill."""
    session = sequence.session
    if session is not None and session.level_at is None and sequence.mirror.last_id == 0:
        session.level_at = session.told
