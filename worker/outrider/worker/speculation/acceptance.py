"""Acceptance estimates: how likely a walk reaches each node, learned from proposers' estimates.

Leaves the choice of rows to `planner` and sending the error scale to the link (speculation.md).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.compiled import njit
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import ROOT

KNOTS = 16
"""Points of the curve from estimate to match rate, evenly spaced in logits."""
MIN_LOGIT = -5.0
MAX_LOGIT = 5.0
PROPOSERS = 2
"""The draft, and the target itself for local nodes."""
LEVELS = 2
"""Children of the root, and deeper nodes: a draft is surer of itself further from known text."""

Table = NDArray[np.float64]


class _Nodes(NamedTuple):
    """Columns of the live nodes of a mirror."""

    parent: Ints
    token: Ints
    logprob: Floats
    proposer: Ints


class _Curves(NamedTuple):
    """Outcomes at each knot and the match rates that follow; [proposers, levels, knots] each."""

    trials: Table
    hits: Table
    prior: Table
    rates: Table


class Calibration:
    """Maps an estimate to the observed match rate, one curve per proposer and level.

    Each knot holds forgetful counts of outcomes, eased towards `prior`: the worker's average for a
    request, the estimate itself for the worker's average. What a request learns its prior learns
    too. `forgetting` is the share of every count that one more sampled row takes away.
    """

    def __init__(
        self, prior: "Calibration | None" = None, weight: float = 16.0, forgetting: float = 1 / 1024
    ) -> None:
        self._prior = prior
        self._weight = weight
        self._keep = 1.0 - forgetting
        shape = (PROPOSERS, LEVELS, KNOTS)
        knots = np.linspace(MIN_LOGIT, MAX_LOGIT, KNOTS)
        identity = np.broadcast_to(1 / (1 + np.exp(-knots)), shape)
        prior_rates = np.ascontiguousarray(identity) if prior is None else prior.rates
        self.rates: Table = prior_rates.copy()
        """[proposers, levels, knots] match rate at each knot."""
        self._curves = _Curves(np.zeros(shape), np.zeros(shape), prior_rates, self.rates)

    def reach(self, mirror: Mirror) -> Floats:
        """Return float32[nodes] the probability that a walk reaches each node.

        It never rises along a path.
        """
        reach: Floats = _reach(mirror.parent, mirror.logprob, mirror.proposer, self.rates)
        return reach

    def learn(self, mirror: Mirror, selected: Ints, sampled: Ints) -> None:
        """Learn the outcome of every live child of every sampled row, selected or not.

        `selected` int32[rows] nodes, `sampled` int32[rows + 1]; call it before the commit.
        """
        nodes = _Nodes(mirror.parent, mirror.token, mirror.logprob, mirror.proposer)
        _learn(nodes, selected, sampled, self._curves, self._keep, self._weight)
        if self._prior is not None:
            self._prior.learn(mirror, selected, sampled)


class ErrorScale:
    """Scale of the draft's error in logits, as the draft needs it (speculation.md).

    Moves until the mass that the draft gives to its first child equals how often that child is
    sampled, on average: a larger scale makes the draft less sure.
    """

    MIN = 0.25
    MAX = 8.0

    def __init__(self, value: float = 1.0, rate: float = 0.02) -> None:
        self.value = value
        """The current scale, in logits."""
        self._rate = rate

    def learn(self, mirror: Mirror, selected: Ints, sampled: Ints) -> None:
        """Learn from the first child of every sampled row, as `Calibration.learn` does."""
        surplus = _first_child_surplus(
            mirror.parent, mirror.token, mirror.logprob, mirror.first_id > 0, selected, sampled
        )
        if surplus != 0.0:
            scaled = self.value * math.exp(self._rate * surplus)
            self.value = min(max(scaled, self.MIN), self.MAX)


@njit()
def _knot(logprob: float) -> tuple[int, float]:
    """Return the knot below an estimate, and how far beyond it the estimate lies, from 0 to 1."""
    estimate = min(max(math.exp(logprob), 1e-9), 1.0 - 1e-9)
    logit = math.log(estimate / (1.0 - estimate))
    at = (logit - MIN_LOGIT) / (MAX_LOGIT - MIN_LOGIT) * (KNOTS - 1)
    at = min(max(at, 0.0), KNOTS - 1.0)
    below = min(int(at), KNOTS - 2)
    return below, at - below


@njit()
def _rate(logprob: float, curve: Table) -> float:
    """Return the match rate of an estimate; below the lowest knot it is proportional to it."""
    below, beyond = _knot(logprob)
    rate: float = curve[below] * (1.0 - beyond) + curve[below + 1] * beyond
    lowest = 1.0 / (1.0 + math.exp(-MIN_LOGIT))
    return rate * min(1.0, math.exp(logprob) / lowest)


@njit()
def _reach(parent: Ints, logprob: Floats, proposer: Ints, rates: Table) -> Floats:
    nodes = parent.shape[0]
    reach = np.empty(nodes, np.float32)
    siblings = np.zeros(nodes + 1)  # sum of rates below each node, the root's last
    for node in range(nodes):
        above = parent[node]
        level = 0 if above == ROOT else 1
        reach[node] = _rate(logprob[node], rates[proposer[node], level])
        siblings[above] += reach[node]  # ROOT is -1: the last entry
    for node in range(nodes):
        above = parent[node]
        reach[node] /= max(np.float32(1), np.float32(siblings[above]))
        if above != ROOT:
            reach[node] *= reach[above]
    return reach


@njit()
def _learn(
    nodes: _Nodes, selected: Ints, sampled: Ints, curves: _Curves, keep: float, weight: float
) -> None:
    parent, trials, hits = nodes.parent, curves.trials, curves.hits
    row_of = _rows_by_node(parent.shape[0], selected)
    faded = keep ** sampled.shape[0]
    for proposer_level_knot in np.ndindex(trials.shape):
        trials[proposer_level_knot] *= faded
        hits[proposer_level_knot] *= faded
    for node in range(parent.shape[0]):
        row = row_of[parent[node]]
        if row < 0:
            continue
        level = 0 if parent[node] == ROOT else 1
        below, beyond = _knot(nodes.logprob[node])
        hit = 1.0 if nodes.token[node] == sampled[row] else 0.0
        for knot, share in ((below, 1.0 - beyond), (below + 1, beyond)):
            trials[nodes.proposer[node], level, knot] += share
            hits[nodes.proposer[node], level, knot] += share * hit
    for at in np.ndindex(curves.rates.shape):
        curves.rates[at] = (hits[at] + weight * curves.prior[at]) / (trials[at] + weight)


@njit()
def _rows_by_node(nodes: int, selected: Ints) -> Ints:
    """Return each node's index into `sampled`, -1 for none; the last is the root's (ROOT = -1)."""
    row_of = np.full(nodes + 1, -1, np.int32)
    row_of[nodes] = 0
    for row in range(selected.shape[0]):
        row_of[selected[row]] = row + 1
    return row_of


@njit()
def _first_child_surplus(
    parent: Ints,
    token: Ints,
    logprob: Floats,
    named: NDArray[np.bool_],
    selected: Ints,
    sampled: Ints,
) -> float:
    """Sum the mass of the draft's first child of each sampled row, less 1 where it was sampled."""
    row_of = _rows_by_node(parent.shape[0], selected)
    best = np.full(sampled.shape[0], -1, np.int32)
    for node in range(parent.shape[0]):
        row = row_of[parent[node]]
        if row >= 0 and named[node] and (best[row] < 0 or logprob[node] > logprob[best[row]]):
            best[row] = node
    surplus = 0.0
    for row in range(sampled.shape[0]):
        if best[row] >= 0:
            surplus += math.exp(logprob[best[row]]) - (token[best[row]] == sampled[row])
    return surplus
