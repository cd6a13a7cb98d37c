"""Worth of growth: whether a target waits for its drafts before a step.

Pure functions, with no memory: what growth brings follows from acceptance and the tree as it is,
what its time is worth from the gain account (docs/decisions/0006). A growth is thought to bring one
node: the likeliest child of the likeliest leaf, and then of that node.
"""

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.acceptance import Table
from outrider.worker.speculation.planner import best_count
from outrider.worker.tree.growth import Floats
from outrider.worker.tree.mirror_table import MirrorNodes
from outrider.worker.tree.walk import ROOT

MOST_GROWTHS = 8
"""Growths that one root is waited for at most."""
ANSWER_TOKENS = 128
"""Tokens that an answer is thought to go on for, if it may have so many: most end sooner."""


@njit()
def next_reaches(nodes: MirrorNodes, reach: Floats, first: Table, depth: int) -> Floats:
    """Return float32[MOST_GROWTHS] the chances that a walk reaches the next nodes of a sequence's
    draft, each the likeliest child of the one before, and no other source's node.

    `reach` float32[nodes]; `first` [levels] how often the likeliest child of a node is right;
    `depth`: a node as deep has no child. The first hangs on the draft's likeliest leaf.
    """
    more = np.zeros(MOST_GROWTHS, np.float32)
    leaf, start, best = _likeliest_leaf(nodes, reach, depth)
    if best == 0.0:
        return more
    covered, right = _covered(nodes, reach, leaf, start), first[0 if leaf == ROOT else 1]
    for at in range(min(MOST_GROWTHS, depth - start)):
        more[at] = right * max(0.0, best - covered[at])
    return more


@njit()
def _likeliest_leaf(nodes: MirrorNodes, reach: Floats, depth: int) -> tuple[int, int, float]:
    """Return the draft's node without a child of the draft that a walk reaches most likely, or
    `ROOT`, with its depth and chance; no chance where none may have a child."""
    is_leaf = np.ones(reach.shape[0] + 1, np.bool_)  # ROOT is -1: the last entry
    for node in range(reach.shape[0]):
        if nodes.first_id[node] != 0:
            is_leaf[nodes.parent[node]] = False
    leaf, start, best = ROOT, 0, 1.0 if is_leaf[-1] and depth > 0 else 0.0
    for node in range(reach.shape[0]):
        may_grow = nodes.first_id[node] != 0 and is_leaf[node] and nodes.depth[node] < depth
        if may_grow and reach[node] > best:
            leaf, start, best = node, int(nodes.depth[node]), float(reach[node])
    return leaf, start, best


@njit()
def _covered(nodes: MirrorNodes, reach: Floats, leaf: int, start: int) -> Table:
    """Return [MOST_GROWTHS] the chances that a walk reaches nodes below a leaf of the draft, at
    depth `start`, by how far below it they are: all of other sources."""
    covered = np.zeros(MOST_GROWTHS)
    is_below = np.zeros(reach.shape[0] + 1, np.bool_)
    is_below[leaf] = True
    for node in range(reach.shape[0]):
        if nodes.first_id[node] == 0 and is_below[nodes.parent[node]]:
            is_below[node], under = True, nodes.depth[node] - start - 1
            if under < MOST_GROWTHS:
                covered[under] += reach[node]
    return covered


@njit()
def worth_of_growth(
    reach: Floats, more: Floats, costs: Seconds, rate: float, price: float
) -> float:
    """Return the tokens by which growth makes a pass worth more: of the next one alone if that is
    worth its price, else of as many as make up for theirs, less the prices of those after it.

    `reach`: chances of nodes, never rising; `more` [growths, sequences] of those that each growth
    should bring; `costs` [k + 1] seconds of a pass with 0, 1, … k node rows; `rate`: tokens that a
    second is worth; `price`: tokens of the time of a growth. Where another source is as sure as the
    draft of the next token alone, one growth brings little, and several bring much.
    """
    without, worth = _best_value(reach, costs, rate), 0.0
    for growths in range(1, more.shape[0] + 1):
        if growths > 1 and more[growths - 1].sum() <= price:
            continue
        known = np.sort(np.concatenate((reach, more[:growths].copy().reshape(-1))))[::-1]
        gain = _best_value(known, costs, rate) - without
        worth = max(worth, gain - (growths - 1) * price)
        if worth > price:
            break
    return float(worth)


@njit()
def _best_value(reach: Floats, costs: Seconds, rate: float) -> float:
    """Return the most that a pass is worth with the best of such nodes, less its time, in tokens.

    `reach`: chances, never rising.
    """
    count = best_count(reach, costs, rate)
    return float(reach[:count].sum() - rate * costs[count])


def worth_of_text(worth: float, price: float, left: int) -> float:
    """Return the tokens that growth is worth with all that follows it, once its draft has computed
    the text before it.

    `worth`: of one growth, in tokens; `price`: of its time; `left`: tokens that may still come.
    """
    passes = min(left, ANSWER_TOKENS) / (1.0 + worth)
    return worth + max(0.0, worth - price) * max(0.0, passes - 1.0)


@njit()
def patience(worth: float, rate: float, expected: float, since: float) -> float:
    """Return the seconds for which growth is waited for from now on; 0 where it is not worth that.

    `expected`: seconds that it should take, of which `since` have passed. Waits end `worth / rate`
    after that: growth that is late is thought to take as long again as it is late.
    """
    most = worth / rate
    return expected + most - since if abs(expected - since) < most else 0.0
