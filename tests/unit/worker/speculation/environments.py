"""Environments for planners: what a step with so many draft tokens commits and takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.gain import GainAccount
from outrider.worker.speculation.planner import NodeCandidates, RowPlan, plan_rows

MOST = 8
"""Draft tokens of a sequence's tree, a chain."""
RECORDED = {
    1: 0.00960, 4: 0.01018, 6: 0.01071, 8: 0.01251, 12: 0.01351, 16: 0.01474, 20: 0.01838,
    24: 0.01838, 32: 0.02203, 48: 0.03166, 64: 0.03959, 128: 0.07918, 256: 0.15836,
}  # fmt: skip
"""Seconds of a pass by its rows: the target of `python -m bench.proportion` at three times the
demo's depth, on two Zen 5 cores; beyond 64 rows by the rows."""
DRAFT_SECONDS = 0.0009
"""Seconds of one pass of the target's draft, in turns with it; one for each draft token."""


@dataclass
class Environment:
    """Time of a step by its rows and draft tokens, and the chance that a draft token is right."""

    acceptance: Callable[[int], float]
    """Chance that a draft token is right, by the number of the step."""
    seconds: Callable[[int], float]
    """Seconds of a pass by its rows."""
    draft_seconds: float = DRAFT_SECONDS
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.steps = 0

    def step(self, sequences: int, each: int) -> tuple[int, float]:
        """Run a step with `each` draft tokens a sequence; return committed tokens and seconds."""
        right = self.random.random((sequences, each + 1)) < self.acceptance(self.steps)
        right[:, -1] = False  # after the last draft token comes the target's own
        self.steps += 1
        committed = sequences + int(right.argmin(axis=1).sum())
        return committed, self.time(sequences, each)

    def time(self, sequences: int, each: int) -> float:
        """Return the seconds of a step."""
        return self.seconds(sequences * (1 + each)) + each * self.draft_seconds

    def rate(self, sequences: int, each: int) -> float:
        """Return the expected tokens per second of `each` draft tokens now."""
        chance = self.acceptance(self.steps)
        expected = sum(chance**depth for depth in range(each + 1))
        return sequences * expected / self.time(sequences, each)

    def best(self, sequences: int) -> int:
        """Return the best number of draft tokens now."""
        return max(range(MOST + 1), key=lambda each: self.rate(sequences, each))

    def tree(self) -> NodeCandidates:
        """Return a sequence's candidates: a chain with the reach that it has."""
        nodes = np.arange(MOST, dtype=np.int32)
        reach = self.acceptance(self.steps) ** np.arange(1, MOST + 1)
        return NodeCandidates(nodes, reach.astype(np.float32), nodes + 1)


def recorded(rows: int) -> float:
    """Return the seconds of a recorded pass."""
    return float(np.interp(rows, list(RECORDED), list(RECORDED.values())))


def cliff(rows: int) -> float:
    """Return the seconds of a pass that costs by tiles of 16 rows."""
    return 0.010 + 0.006 * ((rows - 1) // 16)


@dataclass
class Run:
    """What a planner made of an environment."""

    chosen: list[float]
    """Draft tokens a sequence of each step."""
    seconds: float
    best_seconds: float
    """Expected seconds that the best fixed number of each moment would have taken for the same
    tokens."""

    @property
    def regret(self) -> float:
        """Share of the time that the best number would have saved."""
        return 1 - self.best_seconds / self.seconds


class Planner(Protocol):
    """Plans node rows, and learns what came of them."""

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan: ...
    def learn(self, tokens: float, seconds: float) -> None: ...


class Goodput:
    """The product's planner, with its account."""

    def __init__(self, plain_rate: float) -> None:
        self._plain_rate = plain_rate
        self._account = GainAccount()

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
        return plan_rows(candidates, costs, self._plain_rate * self._account.pace, max_rows)

    def learn(self, tokens: float, seconds: float) -> None:
        self._account.learn(tokens / self._plain_rate, seconds)


def drive(planner: Planner, environment: Environment, sequences: int, steps: int) -> Run:
    """Let a planner choose for so many steps of so many sequences."""
    run = Run([], 0.0, 0.0)
    costs = np.array([environment.seconds(sequences + k) for k in range(sequences * MOST + 1)])
    costs += environment.draft_seconds * np.arange(len(costs)) / sequences
    for _ in range(steps):
        best = environment.rate(sequences, environment.best(sequences))
        plan = planner.plan([environment.tree()] * sequences, costs, MOST)
        each = sum(plan.rows) / sequences
        expected = environment.rate(sequences, round(each))
        tokens, seconds = environment.step(sequences, round(each))
        planner.learn(tokens, seconds)
        run.chosen.append(each)
        run.seconds += seconds
        run.best_seconds += seconds * expected / best
    return run
