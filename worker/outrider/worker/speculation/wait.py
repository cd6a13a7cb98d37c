"""Worth of growth: whether a target waits for its drafts before a step.

Pure functions, with no memory: what growth brings follows from acceptance and the tree as it is,
what its time is worth from the gain account (docs/decisions/0006). A growth is thought to bring one
node: the likeliest child of the best leaf.
"""

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.acceptance import Table
from outrider.worker.tree.growth import Floats
from outrider.worker.tree.mirror_table import MirrorNodes

MOST_GROWTHS = 8
"""Growths that one root is waited for at most."""
ANSWER_TOKENS = 128
"""Tokens that an answer is thought to go on for, if it may have so many: most end sooner."""


@njit()
def next_reach(nodes: MirrorNodes, reach: Floats, first: Table, depth: int) -> float:
    """Return the chance that a walk reaches the next node of a sequence's draft.

    `reach` float32[nodes]; `first` [levels] how often the likeliest child of a node is right;
    `depth`: a node as deep has no child. Where other sources have children already, the draft's can
    only be right where those are not.
    """
    count = reach.shape[0]
    is_leaf, left = np.ones(count + 1, np.bool_), np.ones(count + 1)  # ROOT is -1: the last entry
    left[:count] = reach
    for node in range(count):
        if nodes.first_id[node] != 0:
            is_leaf[nodes.parent[node]] = False
        else:
            left[nodes.parent[node]] -= reach[node]
    best = first[0] * max(0.0, left[count]) if is_leaf[count] and depth > 0 else 0.0
    for node in range(count):
        if nodes.first_id[node] != 0 and is_leaf[node] and nodes.depth[node] < depth:
            best = max(best, left[node] * first[1])
    return best


@njit()
def worth_of_growth(reach: Floats, more: Floats, costs: Seconds, rate: float) -> float:
    """Return the tokens by which a pass is worth more with nodes that are reached as `more` says.

    `reach` and `more`: chances of nodes, never rising; `costs` [k + 1] seconds of a pass with 0, 1,
    … k node rows; `rate`: tokens that a second is worth.
    """
    best = best_with = -rate * costs[0]
    total = total_with = 0.0
    old = new = 0
    for k in range(1, costs.shape[0]):
        if k <= reach.shape[0]:
            total += reach[k - 1]
            best = max(best, total - rate * costs[k])
        if new < more.shape[0] and (old == reach.shape[0] or more[new] > reach[old]):
            total_with += more[new]
            new += 1
        elif old < reach.shape[0]:
            total_with += reach[old]
            old += 1
        else:
            break
        best_with = max(best_with, total_with - rate * costs[k])
    return float(best_with - best)


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
