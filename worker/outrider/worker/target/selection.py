"""Selection of the node rows that the next pass verifies, or of a wait for better ones.

Joins acceptance, planner, switch and wait policy, each a file of `speculation`. Knows nothing of
KV or links.
"""

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.model.step_costs import StepCosts
from outrider.worker.speculation.acceptance import Calibration, ErrorScale
from outrider.worker.speculation.planner import (
    NO_CANDIDATES,
    Candidates,
    Goodput,
    Planner,
    RowPlan,
    Seconds,
    best_count,
    sorted_candidates,
)
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.speculation.wait import WaitPolicyByBatch
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import Paths, paths

NO_TOKEN = -1
FULL_SHARE = 0.9
"""A draft whose tree holds this share of its nodes ahead is not waited for."""
SLOWDOWN_MEMORY = 0.98
"""Weight of the past in the running mean of `slowdown`."""
CONTEXT_STEP = 32
"""Tokens of context over which step costs are taken as equal."""


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The nodes of one sequence that one pass verifies."""

    nodes: Ints
    """int32[rows] indices into the mirror, parents first."""
    tokens: Ints
    """int32[rows]."""
    paths: Paths
    live: int
    """Live nodes of the mirror."""
    first_token: int
    """Likeliest token after the root, if its node is among the rows; else `NO_TOKEN`."""


NO_INDICES = np.zeros(0, np.int32)
NO_PATHS = paths(NO_INDICES, NO_INDICES, NO_INDICES)
NO_NODES = SelectedRows(NO_INDICES, NO_INDICES, NO_PATHS, live=0, first_token=NO_TOKEN)


@dataclass(frozen=True, slots=True)
class PlainCost:
    """Seconds of a step without any draft, by the step costs."""

    step: float = 0.0
    """Seconds in which each of its sequences gets one token."""
    prefill: float = 0.0
    """Seconds that its prefill rows add."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The node rows of one pass, and its times by the step costs."""

    rows: list[SelectedRows]
    """One for each sequence, in the order given."""
    expected_seconds: float
    """Expected seconds of the pass."""
    plain: PlainCost
    """Cost of the step without nodes."""


@dataclass(slots=True)
class RowSelector:
    """Selects node rows by what one target has measured of its drafts and of its own passes."""

    costs: StepCosts
    policy: PolicySettings
    switch: Switch
    planner: Planner
    row_capacity: int
    """Rows that one pass can hold."""
    wait_policy: WaitPolicyByBatch = field(default_factory=WaitPolicyByBatch)
    average: Calibration = field(default_factory=Calibration)
    """Over all requests: the prior of each new one."""
    scale: ErrorScale = field(default_factory=ErrorScale)
    slowdown: float = 1.0
    """Measured time of a pass over its step cost: drafts may share memory with the target."""
    host_seconds: float = 0.0
    """Host time of a plain step, without its forward pass."""
    _cost_cache: dict[tuple[int, int, int, int], Seconds] = field(default_factory=dict)
    _costs: Seconds = field(default_factory=lambda: np.zeros(1))
    """Of the last step that was planned, by its node rows."""

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
            costs=costs,
            policy=policy,
            switch=switch_for(policy, now),
            planner=Goodput(1.0 / costs.seconds(1, 1)),
            row_capacity=row_capacity,
            wait_policy=wait_policy or WaitPolicyByBatch(),
            host_seconds=host_seconds,
        )

    @property
    def drafting(self) -> str:
        """State of the switch; `disabled` where the policy forbids drafting."""
        return self.switch.state.value if self.policy.speculate else "disabled"

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""
        self.switch = switch_for(self.policy, now, self.switch.scale)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy; start a new switch if its thresholds change or it allows drafting again,
        because the gain measured so far is out of date."""
        allowed_again = policy.speculate and not self.policy.speculate
        if allowed_again or thresholds(policy) != thresholds(self.policy):
            self.switch = switch_for(policy, now, self.switch.scale)
        self.policy = policy

    def new_calibration(self) -> Calibration:
        """Make the calibration of a new request, with the average as its prior."""
        return Calibration(self.average)

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""
        return self.policy.speculate and submit.speculate and self.switch.drafting

    def rests(self, submit: Submit) -> bool:
        """True if drafts would grow for a request, were the switch not off."""
        return self.policy.speculate and submit.speculate and not self.switch.drafting

    def select(
        self, sequences: list[Sequence], prefill_rows: int, now: float, may_wait: bool
    ) -> Selection | None:
        """Select the node rows of the next pass, which decodes `sequences` and runs `prefill_rows`.

        None if growth may be waited for and is worth it.
        """
        if not sequences:
            self.wait_policy.break_off(now)
            return Selection([], 0.0, PlainCost())
        context = sum(s.length for s in sequences) // len(sequences)
        costs = self.slowdown * self._costs_of(len(sequences), prefill_rows, context)
        self._costs = costs
        plain = self._plain(len(sequences), prefill_rows, context)
        self.planner.plain_rate = len(sequences) / plain.step
        candidates = [self._candidates(sequence) for sequence in sequences]
        plan = self.planner.plan(candidates, costs, self.policy.max_rows)
        if self._waits(sequences, candidates, plan, costs, now, may_wait and prefill_rows == 0):
            return None
        counts = plan.rows.tolist()
        rows = [best_rows(*one) for one in zip(sequences, candidates, counts, strict=True)]
        return Selection(rows, float(costs[sum(counts)]), plain)

    def learn(self, sequence: Sequence, selected: SelectedRows, sampled: Ints) -> None:
        """Learn from the tokens sampled after each row; call it before the mirror's commit."""
        if len(sequence.mirror) == 0:
            return
        sequence.calibration.learn(sequence.mirror, selected.nodes, sampled)
        self.scale.learn(sequence.mirror, selected.nodes, sampled)

    def saw_first_growth(self, sequence: Sequence) -> None:
        """Learn what the first growth of a root is worth, also where it was not waited for."""
        policy = self.wait_policy.present
        if not policy.wants_value(sequence.survived) or not self.speculates(sequence):
            return
        reach = self._candidates(sequence).reach[: self.policy.max_rows]
        _, value = best_count(reach, self._costs, self.planner.rate)
        nothing = -self.planner.rate * float(self._costs[0])
        policy.saw_value(sequence.survived, 1, value - nothing)

    def observe(
        self, tokens: int, expected: float, forward: float, spent: float, plain: float, now: float
    ) -> None:
        """Learn the seconds of a step that committed `tokens`.

        `expected` and `forward`: of its pass, by the step costs and measured; `spent`: of all of
        it; `plain`: of plain decoding for the same tokens.
        """
        self.planner.learn(tokens, spent)
        if expected > 0:
            ratio = forward / (expected / self.slowdown)
            self.slowdown += (1 - SLOWDOWN_MEMORY) * (min(max(ratio, 0.5), 4.0) - self.slowdown)
        self.switch.observe(now, plain, spent)

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the present wait ends; None if there is none."""
        wait = self.wait_policy.ongoing
        return None if wait is None else max(0.0, wait.until - now)

    def speculates(self, sequence: Sequence) -> bool:
        """True if node rows of a sequence could add a token."""
        useful = sequence.generated > 0 and sequence.remaining > 1
        return useful and self.wants_drafts(sequence.submit)

    def _plain(self, sequences: int, prefill_rows: int, context: int) -> PlainCost:
        """Return the cost of a step of so many sequences without nodes, beside prefill rows."""
        alone = float(self._costs_of(sequences, 0, context)[0])
        beside = float(self._costs_of(sequences, prefill_rows, context)[0])
        return PlainCost(alone + self.host_seconds, beside - alone)

    def _costs_of(self, sequences: int, prefill_rows: int, context: int) -> Seconds:
        """Return the seconds of a pass by node rows; cached, since every step reads them."""
        key = (self.policy.max_rows, sequences, prefill_rows, context // CONTEXT_STEP)
        known = self._cost_cache.get(key)
        if known is None:
            base = sequences + prefill_rows
            most = max(0, min(self.policy.max_rows * sequences, self.row_capacity - base))
            known = self.costs.curve(most, context, sequences, base)
            if len(self._cost_cache) >= 64:
                self._cost_cache.clear()
            self._cost_cache[key] = known
        return known

    def _candidates(self, sequence: Sequence) -> Candidates:
        """Return a sequence's candidates, best first."""
        mirror = sequence.mirror
        if len(mirror) == 0 or not self.speculates(sequence):
            return NO_CANDIDATES
        reach = sequence.calibration.reach(mirror)
        return sorted_candidates(
            reach, mirror.parent, mirror.token, mirror.depth, sequence.remaining, sequence.ends
        )

    def _waits(
        self,
        sequences: list[Sequence],
        candidates: list[Candidates],
        plan: RowPlan,
        costs: Seconds,
        now: float,
        may_wait: bool,
    ) -> bool:
        """True if growth is worth a wait; tells the wait policy the value of the present trees."""
        policy, rate = self.wait_policy.of(len(sequences), now), self.planner.rate
        rows = int(plan.rows.sum())
        price = rate * float(costs[rows] - costs[0]) / max(rows, 1)
        growing = []
        value = 0.0
        for sequence, best, k in zip(sequences, candidates, plan.rows.tolist(), strict=True):
            if not self.speculates(sequence):
                continue
            own = float(best.reach[:k].sum()) - price * k
            policy.saw_value(sequence.survived, sequence.growths, own)
            value += own
            session = sequence.session
            if session is not None and len(sequence.mirror) < FULL_SHARE * session.nodes_ahead:
                growing.append(sequence)
        if not growing or not may_wait:
            policy.stop(value, rate, now)
            return False
        since = now - max(sequence.committed_at for sequence in growing)
        roots = [(sequence.survived, sequence.growths) for sequence in growing]
        return policy.should_wait(roots, value, rate, since, now)


def best_rows(sequence: Sequence, candidates: Candidates, count: int) -> SelectedRows:
    """Select a sequence's `count` best candidates."""
    mirror = sequence.mirror
    if count == 0 and len(mirror) == 0:
        return NO_NODES
    nodes = candidates.nodes[:count]
    first = nodes[candidates.depth[:count] == 1][:1]
    return SelectedRows(
        nodes=nodes,
        tokens=mirror.token[nodes],
        paths=paths(mirror.parent, mirror.depth, nodes),
        live=len(mirror),
        first_token=int(mirror.token[first[0]]) if len(first) else NO_TOKEN,
    )


def pruned(selected: SelectedRows, keeps: NDArray[np.bool_], sequence: Sequence) -> SelectedRows:
    """Return the selection with the rows of `keeps` bool[rows]; it must keep the parent of each."""
    if keeps.all():
        return selected
    mirror, nodes = sequence.mirror, selected.nodes[keeps]
    tokens = mirror.token[nodes]
    first_is_kept = bool((tokens[mirror.depth[nodes] == 1] == selected.first_token).any())
    return dataclasses.replace(
        selected,
        nodes=nodes,
        tokens=tokens,
        paths=paths(mirror.parent, mirror.depth, nodes),
        first_token=selected.first_token if first_is_kept else NO_TOKEN,
    )


def thresholds(policy: PolicySettings) -> SwitchSettings:
    """Return the gains below and above which drafting goes off and comes back."""
    return SwitchSettings(
        off_below=policy.off_below_percent / 100, on_above=policy.on_above_percent / 100
    )


def switch_for(policy: PolicySettings, now: float, scale: float = 1.0) -> Switch:
    """Make a switch with the policy's thresholds that has seen no drafting yet."""
    return Switch(now, thresholds(policy), scale)
