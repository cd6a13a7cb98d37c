"""Which nodes of the sequences' mirrors the next pass verifies, or whether to wait for better ones.

Puts estimates, order, plan, switch and patience together; each of them is a file of its own. Knows
nothing of KV or links.
"""

import dataclasses
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.model.step_costs import StepCosts
from outrider.worker.speculation.acceptance import Calibration, ErrorScale
from outrider.worker.speculation.candidates import NO_CHILDREN, Candidates, Seconds, rank
from outrider.worker.speculation.planner import Goodput, Planner, RowPlan
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.speculation.wait_by_batch import WaitPolicyByBatch
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.walk import Ints, Paths, paths

NO_NODES = np.zeros(0, np.int32)
NO_TOKEN = -1
FULL = 0.9
"""A mirror this full, of what its draft may hold, grows no further: waiting is pointless."""
SLOWDOWN_MEMORY = 0.98
CONTEXT_STEP = 32
"""Tokens of context over which step costs are taken as equal."""


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The nodes of one sequence in one pass."""

    nodes: Ints
    """int32[rows] indices into the mirror, parents first."""
    tokens: Ints
    """int32[rows]."""
    paths: Paths
    offered: int
    """Live nodes of the mirror."""
    first_guess: int
    """Likeliest token after the root, if its node is among the rows; else `NO_TOKEN`."""


NOTHING = SelectedRows(NO_NODES, NO_NODES, paths(NO_NODES, NO_NODES, NO_NODES), 0, NO_TOKEN)


@dataclass(frozen=True, slots=True)
class PlainCost:
    """What a step would take without any draft, by the step costs."""

    step: float = 0.0
    """Seconds in which each of its sequences gets one token."""
    prompts: float = 0.0
    """Seconds that its prompt rows add."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes of one pass."""

    choices: Several[SelectedRows]
    """One for each sequence, in the order given."""
    expected_seconds: float
    """What the pass should take, from the step costs."""
    plain: PlainCost
    """What its step would take without nodes."""


@dataclass(slots=True)
class RowSelector:
    """One target's experience with its drafts."""

    costs: StepCosts
    policy: PolicySettings
    switch: Switch
    planner: Planner
    row_capacity: int
    """Rows that one pass can hold."""
    patience: WaitPolicyByBatch = field(default_factory=WaitPolicyByBatch)
    average: Calibration = field(default_factory=Calibration)
    """Over all requests: the prior of each new one."""
    scale: ErrorScale = field(default_factory=ErrorScale)
    slowdown: float = 1.0
    """Measured time of a pass over its step cost: drafts may share memory with the target."""
    host_seconds: float = 0.0
    """What a plain step takes beside its pass."""
    _curves: dict[tuple[int, int, int, int], Seconds] = field(default_factory=dict)

    @classmethod
    def start(
        cls, costs: StepCosts, policy: PolicySettings, row_capacity: int, now: float
    ) -> "RowSelector":
        """A chooser that has seen nothing yet."""
        planner = Goodput(1.0 / costs.seconds(1, 1))
        return cls(costs, policy, switch_for(policy, now), planner, row_capacity)

    @property
    def drafting(self) -> str:
        """What the switch wants, in a word; `disabled` where the policy wants no drafting."""
        return self.switch.state.value if self.policy.speculate else "disabled"

    def restart(self, now: float) -> None:
        """Forgets what made drafting go off: a fresh draft deserves a fresh start."""
        self.switch = switch_for(self.policy, now, self.switch.scale)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Takes a new policy; new thresholds start a new switch, and so does drafting that is
        allowed again: what the old switch knew is of another time."""
        back = policy.speculate and not self.policy.speculate
        if back or thresholds(policy) != thresholds(self.policy):
            self.switch = switch_for(policy, now, self.switch.scale)
        self.policy = policy

    def calibration_for(self, submit: Submit) -> Calibration:
        """A fresh request's own calibration, with the average as its prior."""
        return Calibration(self.average)

    def wants_drafts(self, submit: Submit) -> bool:
        """Whether drafts should grow for a request."""
        return self.policy.speculate and submit.speculate and self.switch.drafting

    def choose(
        self, sequences: Several[Sequence], prompt_rows: int, now: float, may_wait: bool
    ) -> Selection | None:
        """The nodes of the next pass over `sequences`, which runs `prompt_rows` of others besides.

        None if growth may be waited for and is worth it.
        """
        if not sequences:
            self.patience.break_off(now)
            return Selection((), 0.0, PlainCost())
        context = sum(s.length for s in sequences) // len(sequences)
        costs = self.slowdown * self._costs_of(len(sequences), prompt_rows, context)
        plain = self._plain(len(sequences), prompt_rows, context)
        self.planner.plain_rate = len(sequences) / plain.step
        ranked = [self._rank(sequence) for sequence in sequences]
        plan = self.planner.plan(ranked, costs, self.policy.max_rows)
        if self._waits(sequences, ranked, plan, costs, now, may_wait and prompt_rows == 0):
            return None
        rows = plan.rows.tolist()
        choices = [_choice(*one) for one in zip(sequences, ranked, rows, strict=True)]
        return Selection(choices, float(costs[sum(rows)]), plain)

    def learn(self, sequence: Sequence, chosen: SelectedRows, drawn: Ints) -> None:
        """Learns how good the guesses were; call it before the mirror's commit."""
        if len(sequence.mirror) == 0:
            return
        sequence.calibration.learn(sequence.mirror, chosen.nodes, drawn)
        self.scale.learn(sequence.mirror, chosen.nodes, drawn)

    def observe(
        self, tokens: int, expected: float, forward: float, spent: float, plain: float, now: float
    ) -> None:
        """Learns what a step took: its pass, all of it, and plain decoding's time, in seconds."""
        self.planner.learn(tokens, spent)
        if expected > 0:
            ratio = forward / (expected / self.slowdown)
            self.slowdown += (1 - SLOWDOWN_MEMORY) * (min(max(ratio, 0.5), 4.0) - self.slowdown)
        self.switch.observe(now, plain, spent)

    def seconds_left(self, now: float) -> float | None:
        """Until the present wait ends; None if there is none."""
        wait = self.patience.going_on
        return None if wait is None else max(0.0, wait.until - now)

    def speculates(self, sequence: Sequence) -> bool:
        """Whether node rows of a sequence could bring anything."""
        useful = sequence.generated > 0 and sequence.remaining > 1
        return useful and self.wants_drafts(sequence.submit)

    def _plain(self, sequences: int, prompt_rows: int, context: int) -> PlainCost:
        """What a step of so many sequences takes without nodes, beside rows of prompts."""
        alone = float(self._costs_of(sequences, 0, context)[0])
        beside = float(self._costs_of(sequences, prompt_rows, context)[0])
        return PlainCost(alone + self.host_seconds, beside - alone)

    def _costs_of(self, sequences: int, prompt_rows: int, context: int) -> Seconds:
        """Seconds of a pass by node rows; remembered, for they are asked for in every step."""
        key = (self.policy.max_rows, sequences, prompt_rows, context // CONTEXT_STEP)
        known = self._curves.get(key)
        if known is None:
            base = sequences + prompt_rows
            most = max(0, min(self.policy.max_rows * sequences, self.row_capacity - base))
            known = self.costs.curve(most, context, sequences, base)
            if len(self._curves) >= 64:
                self._curves.clear()
            self._curves[key] = known
        return known

    def _rank(self, sequence: Sequence) -> Candidates:
        """A sequence's candidates, best first."""
        mirror = sequence.mirror
        if len(mirror) == 0 or not self.speculates(sequence):
            return NO_CHILDREN
        reach = sequence.calibration.reach(mirror)
        return rank(
            reach, mirror.parent, mirror.token, mirror.depth, sequence.remaining, sequence.ends
        )

    def _waits(
        self,
        sequences: Several[Sequence],
        ranked: Several[Candidates],
        plan: RowPlan,
        costs: Seconds,
        now: float,
        may_wait: bool,
    ) -> bool:
        """Whether to wait for growth; teaches patience what the trees are worth as they are."""
        patience, rate = self.patience.of(len(sequences), now), self.planner.rate
        rows = int(plan.rows.sum())
        price = rate * float(costs[rows] - costs[0]) / max(rows, 1)
        growing = []
        value = 0.0
        for sequence, candidates, k in zip(sequences, ranked, plan.rows.tolist(), strict=True):
            if not self.speculates(sequence):
                continue
            own = float(candidates.reach[:k].sum()) - price * k
            patience.saw_value(sequence.survived, sequence.growths, own)
            value += own
            session = sequence.session
            if session is not None and len(sequence.mirror) < FULL * session.nodes_ahead:
                growing.append(sequence)
        if not growing or not may_wait:
            patience.stop(value, rate, now)
            return False
        since = now - max(sequence.committed_at for sequence in growing)
        roots = [(sequence.survived, sequence.growths) for sequence in growing]
        return patience.should_wait(roots, value, rate, since, now)


def _choice(sequence: Sequence, ranked: Candidates, rows: int) -> SelectedRows:
    mirror = sequence.mirror
    if rows == 0 and len(mirror) == 0:
        return NOTHING
    nodes = ranked.nodes[:rows]
    first = nodes[ranked.depth[:rows] == 1][:1]
    return SelectedRows(
        nodes=nodes,
        tokens=mirror.token[nodes],
        paths=paths(mirror.parent, mirror.depth, nodes),
        offered=len(mirror),
        first_guess=int(mirror.token[first[0]]) if len(first) else NO_TOKEN,
    )


def pruned(chosen: SelectedRows, keeps: NDArray[np.bool_], sequence: Sequence) -> SelectedRows:
    """The same choice without nodes that can never be drawn, bool[rows], parents with children."""
    if keeps.all():
        return chosen
    mirror, nodes = sequence.mirror, chosen.nodes[keeps]
    tokens = mirror.token[nodes]
    guessed = bool((tokens[mirror.depth[nodes] == 1] == chosen.first_guess).any())
    return dataclasses.replace(
        chosen,
        nodes=nodes,
        tokens=tokens,
        paths=paths(mirror.parent, mirror.depth, nodes),
        first_guess=chosen.first_guess if guessed else NO_TOKEN,
    )


def thresholds(policy: PolicySettings) -> SwitchSettings:
    """When drafting goes off and comes back."""
    return SwitchSettings(
        off_below=policy.off_below_percent / 100, on_above=policy.on_above_percent / 100
    )


def switch_for(policy: PolicySettings, now: float, scale: float = 1.0) -> Switch:
    """A switch that has seen no drafting yet, with the policy's thresholds."""
    return Switch(now, thresholds(policy), scale)
