"""Which nodes of a sequence's mirror the next pass verifies, or whether to wait for better ones.

Puts estimates, order, plan, switch and patience together; each of them is a file of its own. Knows
nothing of KV or links.
"""

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import PolicySettings
from outrider.worker.calibration import Calibration, ErrorScale
from outrider.worker.costs import StepCosts
from outrider.worker.messages import Submit
from outrider.worker.patience import Patience
from outrider.worker.planner import Goodput
from outrider.worker.ranking import Ranked, Seconds, rank
from outrider.worker.sequence import Sequence
from outrider.worker.switch import Switch, SwitchSettings
from outrider.worker.tree import Ints, Paths, paths

NO_NODES = np.zeros(0, np.int32)
NO_TOKEN = -1
FULL = 0.9
"""A mirror this full, of what its draft may hold, grows no further: waiting is pointless."""
SLOWDOWN_MEMORY = 0.98
CONTEXT_STEP = 32
"""Tokens of context over which step costs are taken as equal."""
NO_COSTS = np.zeros(1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes of one pass."""

    nodes: Ints
    """int32[rows] indices into the mirror, parents first."""
    tokens: Ints
    """int32[rows]."""
    paths: Paths
    offered: int
    """Live nodes of the mirror."""
    first_guess: int
    """Likeliest token after the root, if its node is among the rows; else `NO_TOKEN`."""
    expected_seconds: float
    """What the pass should take, from the step costs."""


NOTHING = Choice(NO_NODES, NO_NODES, paths(NO_NODES, NO_NODES, NO_NODES), 0, NO_TOKEN, 0.0)


@dataclass(slots=True)
class Chooser:
    """One target's experience with its drafts."""

    costs: StepCosts
    policy: PolicySettings
    switch: Switch
    planner: Goodput
    patience: Patience = field(default_factory=Patience)
    average: Calibration = field(default_factory=Calibration)
    """Over all requests: the prior of each new one."""
    scale: ErrorScale = field(default_factory=ErrorScale)
    slowdown: float = 1.0
    """Measured time of a pass over its step cost: drafts may share memory with the target."""
    host_seconds: float = 0.0
    """What a plain step takes beside its pass."""
    _curve: tuple[tuple[int, int], Seconds] = ((0, 0), NO_COSTS)

    @classmethod
    def start(cls, costs: StepCosts, policy: PolicySettings, now: float) -> "Chooser":
        """A chooser that has seen nothing yet."""
        return cls(costs, policy, switch_for(policy, now), Goodput(1.0 / costs.seconds(1, 1)))

    def restart(self, now: float) -> None:
        """Forgets what made drafting go off: a fresh draft deserves a fresh start."""
        self.switch = switch_for(self.policy, now, self.switch.scale)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Takes a new policy; new thresholds start a new switch."""
        if thresholds(policy) != thresholds(self.policy):
            self.switch = switch_for(policy, now, self.switch.scale)
        self.policy = policy

    def calibration_for(self, submit: Submit) -> Calibration:
        """A fresh request's own calibration, with the average as its prior."""
        return Calibration(self.average)

    def wants_drafts(self, submit: Submit) -> bool:
        """Whether drafts should grow for a request."""
        return self.policy.speculate and submit.speculate and self.switch.drafting

    def choose(self, sequence: Sequence, now: float, may_wait: bool) -> Choice | None:
        """The nodes of the next pass; None if growth may be waited for and is worth it."""
        useful = sequence.generated > 0 and sequence.remaining > 1
        if not useful or not self.wants_drafts(sequence.submit):
            self.patience.stop(0.0, 0.0, now)
            return NOTHING
        mirror, costs = sequence.mirror, self._costs(sequence.length)
        if len(mirror) == 0:
            return self._choose_nothing(sequence, float(costs[0]), now, may_wait)
        reach = sequence.calibration.reach(mirror)
        ranked = rank(
            reach, mirror.parent, mirror.token, mirror.depth, sequence.remaining, sequence.ends
        )
        plan = self.planner.plan([ranked], costs, self.policy.max_rows)
        value = plan.value + self.planner.rate * float(costs[0])
        self.patience.saw_value(sequence.survived, sequence.growths, value)
        if self._waits(sequence, value, now, may_wait):
            return None
        return self._choice(sequence, ranked, int(plan.rows[0]), costs)

    def learn(self, sequence: Sequence, chosen: Choice, drawn: Ints) -> None:
        """Learns how good the guesses were; call it before the mirror's commit."""
        if len(sequence.mirror) == 0:
            return
        sequence.calibration.learn(sequence.mirror, chosen.nodes, drawn)
        self.scale.learn(sequence.mirror, chosen.nodes, drawn)

    def observe(
        self, chosen: Choice, tokens: int, forward: float, spent: float, plain: float, now: float
    ) -> None:
        """Learns what a step took: its pass, all of it, and plain decoding's time, in seconds."""
        self.planner.learn(tokens, spent)
        if chosen.expected_seconds > 0:
            ratio = forward / (chosen.expected_seconds / self.slowdown)
            self.slowdown += (1 - SLOWDOWN_MEMORY) * (min(max(ratio, 0.5), 4.0) - self.slowdown)
        self.switch.observe(now, plain, spent)

    def plain_seconds(self, context: int) -> float:
        """What a step of plain decoding takes, by the step costs."""
        return float(self._costs_by_row(context)[0]) + self.host_seconds

    def seconds_left(self, now: float) -> float | None:
        """Until the present wait ends; None if there is none."""
        wait = self.patience.going_on
        return None if wait is None else max(0.0, wait.until - now)

    def _costs(self, context: int) -> Seconds:
        """Seconds of a pass by node rows, beside a draft that may slow it."""
        return self.slowdown * self._costs_by_row(context)

    def _costs_by_row(self, context: int) -> Seconds:
        """Step costs by node rows; kept for a while, for they are asked for in every step."""
        key = (self.policy.max_rows, context // CONTEXT_STEP)
        if self._curve[0] != key:
            self._curve = (key, self.costs.curve(self.policy.max_rows, context))
        return self._curve[1]

    def _waits(self, sequence: Sequence, value: float, now: float, may_wait: bool) -> bool:
        session, rate = sequence.session, self.planner.rate
        full = session is None or len(sequence.mirror) >= FULL * session.nodes_ahead
        if full or not may_wait:
            self.patience.stop(value, rate, now)
            return False
        since = now - sequence.committed_at
        return self.patience.should_wait(
            sequence.survived, sequence.growths, value, rate, since, now
        )

    def _choose_nothing(
        self, sequence: Sequence, seconds: float, now: float, may_wait: bool
    ) -> Choice | None:
        """The only choice in an empty mirror, where there is nothing to estimate and to order."""
        self.patience.saw_value(sequence.survived, sequence.growths, 0.0)
        if self._waits(sequence, 0.0, now, may_wait):
            return None
        return dataclasses.replace(NOTHING, expected_seconds=seconds)

    def _choice(self, sequence: Sequence, ranked: Ranked, rows: int, costs: Seconds) -> Choice:
        mirror = sequence.mirror
        nodes = ranked.nodes[:rows]
        first = nodes[ranked.depth[:rows] == 1][:1]
        return Choice(
            nodes=nodes,
            tokens=mirror.token[nodes],
            paths=paths(mirror.parent, mirror.depth, nodes),
            offered=len(mirror),
            first_guess=int(mirror.token[first[0]]) if len(first) else NO_TOKEN,
            expected_seconds=float(costs[rows]),
        )


def pruned(chosen: Choice, keeps: NDArray[np.bool_], sequence: Sequence) -> Choice:
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
        expected_seconds=0.0,
    )


def thresholds(policy: PolicySettings) -> SwitchSettings:
    """When drafting goes off and comes back."""
    return SwitchSettings(
        off_below=policy.off_below_percent / 100, on_above=policy.on_above_percent / 100
    )


def switch_for(policy: PolicySettings, now: float, scale: float = 1.0) -> Switch:
    """A switch that has seen no drafting yet, with the policy's thresholds."""
    return Switch(now, thresholds(policy), scale)
