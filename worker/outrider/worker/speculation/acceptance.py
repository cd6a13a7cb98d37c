"""Acceptance estimates: how likely a walk reaches each node, learned from proposers' estimates.

Leaves the choice of rows to `planner` and sending the error scale to the link (speculation.md).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.sources import SOURCES
from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Floats, Ids, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.mirror_table import DRAFT, NOBODY, MirrorNodes
from outrider.worker.tree.walk import ROOT

KNOTS = 16
"""Points of the curve from estimate to match rate, evenly spaced in logits."""
MIN_LOGIT = -5.0
MAX_LOGIT = 5.0
PROPOSERS = len(SOURCES)
ALL_SOURCES = (1 << PROPOSERS) - 1
"""Sources as one number, a bit each in the order of `SOURCES`."""
PRIOR_FIRST = 0.7
"""How often the likeliest child is first thought to be right."""
LEVELS = 2
"""Number of levels of nodes, each with match rates of its own. Of the draft's nodes: children of
the root, and deeper ones, since a draft is surer of itself further from known text. Of local nodes:
any, and those beside a child of the draft, which is right in their place where it is sure."""

Table = NDArray[np.float64]


class Rates(NamedTuple):
    """Outcomes of several kinds, and how often each was right; all arrays of one shape."""

    trials: Table
    hits: Table
    prior: Table
    rates: Table

    @classmethod
    def of(cls, prior: Table) -> "Rates":
        """Return those of no outcome."""
        return cls(np.zeros(prior.shape), np.zeros(prior.shape), prior, prior.copy())


class Curves(NamedTuple):
    """Outcomes of a request, or of all, and the rates that follow."""

    matches: Rates
    """[proposers, levels, knots] of children by their estimates."""
    first: Rates
    """[levels] of the draft's likeliest child of each row, whatever its estimate."""
    keep: float
    """Share of every count that one more sampled row leaves."""
    weight: float
    """Weight of the prior, in outcomes."""


class Outcomes(NamedTuple):
    """Live children of the rows of one pass: how likely they were thought to be, and what came."""

    proposer: Ints
    """Proposer of each estimate, int32[estimates]; a child is here once for each proposer and level
    that it tells of."""
    knot: Ids
    """Knot below each estimate, int64[estimates]."""
    beyond: Table
    """Distance of each estimate beyond its knot, from 0 to 1, float64[estimates]."""
    level: Ints
    hit: NDArray[np.bool_]
    """True where the child was sampled."""
    first: Ints
    """The draft's likeliest child of the root and of each row, int32[rows]; -1: it has none."""
    first_hit: NDArray[np.bool_]
    """[rows] true where that was sampled."""


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
        if prior is None:
            knots = 1 / (1 + np.exp(-np.linspace(MIN_LOGIT, MAX_LOGIT, KNOTS)))
            matches = np.ascontiguousarray(np.broadcast_to(knots, (PROPOSERS, LEVELS, KNOTS)))
            first: Table = np.full(LEVELS, PRIOR_FIRST)
        else:
            matches, first = prior.rates, prior.first
        self.curves = Curves(Rates.of(matches), Rates.of(first), 1.0 - forgetting, weight)
        """What compiled code reads and writes."""

    @property
    def rates(self) -> Table:
        """[proposers, levels, knots] match rate at each knot."""
        return self.curves.matches.rates

    @property
    def first(self) -> Table:
        """[levels] how often the draft's likeliest child of a node is right."""
        return self.curves.first.rates

    @property
    def average(self) -> Curves:
        """Curves of the prior: those of all requests."""
        return self.curves if self._prior is None else self._prior.curves

    def reach(self, mirror: Mirror, sources: int = ALL_SOURCES) -> Floats:
        """Return float32[nodes] the probability that a walk reaches each node.

        It never rises along a path. `sources`: those whose nodes count, a bit each; others have 0.
        """
        reach: Floats = reach_of(mirror.tables.nodes, len(mirror), self.rates, sources)
        return reach

    def learn(self, mirror: Mirror, selected: Ints, sampled: Ints) -> None:
        """Learn the outcome of every live child of every sampled row, selected or not.

        `selected` int32[rows] nodes, `sampled` int32[rows + 1]; call it before the commit.
        """
        nodes = mirror.tables.nodes
        learn(outcomes(nodes, len(mirror), selected, sampled), len(sampled), self.curves)
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

    def learn(self, surplus: float) -> None:
        """Learn from a pass; `surplus`: its `first_child_surplus`."""
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
def reach_of(nodes: MirrorNodes, count: int, rates: Table, sources: int) -> Floats:
    """Return the `Calibration.reach` of the first `count` nodes, as if only some of the sources,
    a bit each, had proposed any: 0 for nodes of others.

    Of two proposers' rates the higher one counts: a text that repeats is sure of what a draft has
    to guess, and the other way round.
    """
    # not taken again for each node, which would count references: 12 µs of 64 nodes, not 4
    parent, proposer, other = nodes.parent, nodes.proposer, nodes.other
    logprob, other_logprob = nodes.logprob, nodes.other_logprob
    reach = np.empty(count, np.float32)
    siblings = np.zeros(count + 1)  # sum of rates below each node, the root's last
    drafted = _drafted(nodes, count)
    for node in range(count):
        above, rate = parent[node], 0.0
        if sources >> proposer[node] & 1:
            level = _level(above, proposer[node], drafted)
            rate = _rate(logprob[node], rates[proposer[node], level])
        if other[node] != NOBODY and sources >> other[node] & 1:
            rate = max(rate, _rate(other_logprob[node], rates[other[node], 0]))
        reach[node] = rate
        siblings[above] += reach[node]  # ROOT is -1: the last entry
    for node in range(count):
        above = parent[node]
        reach[node] /= max(np.float32(1), np.float32(siblings[above]))
        if above != ROOT:
            reach[node] *= reach[above]
    return reach


@njit()
def _drafted(nodes: MirrorNodes, count: int) -> NDArray[np.bool_]:
    """Return [count + 1] true for each node that has a child of the draft; the root's is last."""
    drafted = np.zeros(count + 1, np.bool_)
    for node in range(count):
        if nodes.proposer[node] == DRAFT:
            drafted[nodes.parent[node]] = True  # ROOT is -1: the last entry
    return drafted


@njit()
def _level(above: int, proposer: int, drafted: NDArray[np.bool_]) -> int:
    """Return the level of what its first proposer thinks of a node below `above`."""
    return int(above != ROOT) if proposer == DRAFT else int(drafted[above])


@njit()
def outcomes(nodes: MirrorNodes, count: int, selected: Ints, sampled: Ints) -> Outcomes:
    """Return what a pass over `selected` nodes showed of the first `count` nodes."""
    row_of, first = _rows_by_node(count, selected), first_children(nodes, count, selected)
    drafted = _drafted(nodes, count)
    first_hit = np.zeros(first.shape[0], np.bool_)
    for row in range(first.shape[0]):
        first_hit[row] = first[row] >= 0 and nodes.token[first[row]] == sampled[row]
    found = Outcomes(
        np.empty(2 * count, np.int32),
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.float64),
        np.empty(2 * count, np.int32),
        np.empty(2 * count, np.bool_),
        first,
        first_hit,
    )
    seen = 0
    for node in range(count):
        above = nodes.parent[node]
        row = row_of[above]
        if row < 0:
            continue
        hit, proposer = nodes.token[node] == sampled[row], nodes.proposer[node]
        level = _level(above, proposer, drafted)
        seen = _note(found, seen, proposer, nodes.logprob[node], level, hit)
        if proposer != DRAFT and level == 1:
            seen = _note(found, seen, proposer, nodes.logprob[node], 0, hit)
        if nodes.other[node] != NOBODY:
            seen = _note(found, seen, nodes.other[node], nodes.other_logprob[node], 0, hit)
    return Outcomes(
        found.proposer[:seen],
        found.knot[:seen],
        found.beyond[:seen],
        found.level[:seen],
        found.hit[:seen],
        first,
        first_hit,
    )


@njit()
def _note(found: Outcomes, seen: int, proposer: int, logprob: float, level: int, hit: bool) -> int:
    """Write one estimate and what came of it; return how many there are then."""
    found.proposer[seen], found.level[seen], found.hit[seen] = proposer, level, hit
    found.knot[seen], found.beyond[seen] = _knot(logprob)
    return seen + 1


@njit()
def learn(seen: Outcomes, rows: int, curves: Curves) -> None:
    """Count the outcomes of a pass of so many sampled rows, and update the rates."""
    matches, first, kept = curves.matches, curves.first, curves.keep**rows
    _fade(matches, kept)
    _fade(first, kept)
    for i in range(seen.proposer.shape[0]):
        proposer, level = seen.proposer[i], seen.level[i]
        hit = 1.0 if seen.hit[i] else 0.0
        below, beyond = seen.knot[i], seen.beyond[i]
        for knot, share in ((below, 1.0 - beyond), (below + 1, beyond)):
            matches.trials[proposer, level, knot] += share
            matches.hits[proposer, level, knot] += share * hit
    for row in range(seen.first.shape[0]):
        if seen.first[row] >= 0:
            first.trials[min(row, 1)] += 1.0
            first.hits[min(row, 1)] += seen.first_hit[row]
    _rate_again(matches, curves.weight)
    _rate_again(first, curves.weight)


@njit()
def _fade(known: Rates, kept: float) -> None:
    for at in np.ndindex(known.trials.shape):
        known.trials[at] *= kept
        known.hits[at] *= kept


@njit()
def _rate_again(known: Rates, weight: float) -> None:
    for at in np.ndindex(known.rates.shape):
        known.rates[at] = (known.hits[at] + weight * known.prior[at]) / (known.trials[at] + weight)


@njit()
def _rows_by_node(nodes: int, selected: Ints) -> Ints:
    """Return each node's index into `sampled`, -1 for none; the last is the root's (ROOT = -1)."""
    row_of = np.full(nodes + 1, -1, np.int32)
    row_of[nodes] = 0
    for row in range(selected.shape[0]):
        row_of[selected[row]] = row + 1
    return row_of


@njit()
def first_children(nodes: MirrorNodes, count: int, selected: Ints) -> Ints:
    """Return int32[rows] the draft's likeliest child of the root and each selected node; -1: it has
    none."""
    row_of = _rows_by_node(count, selected)
    best = np.full(selected.shape[0] + 1, -1, np.int32)
    for node in range(count):
        row = row_of[nodes.parent[node]]
        if row < 0 or nodes.first_id[node] == 0:
            continue
        if best[row] < 0 or nodes.logprob[node] > nodes.logprob[best[row]]:
            best[row] = node
    return best


@njit()
def first_child_surplus(nodes: MirrorNodes, seen: Outcomes) -> float:
    """Sum the mass of the draft's first child of each sampled row, less 1 where it was sampled."""
    surplus = 0.0
    for row in range(seen.first.shape[0]):
        if seen.first[row] >= 0:
            surplus += math.exp(nodes.logprob[seen.first[row]]) - seen.first_hit[row]
    return surplus
