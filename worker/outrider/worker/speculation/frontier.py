"""Frontier of a source's search: continuations that are no nodes yet, best first.

What a continuation is, its source knows; here it is a number.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Floats, Ints

MAX_FRONTIER = 128
"""Continuations that are weighed against each other."""


class Frontier(NamedTuple):
    """Continuations, in no order."""

    name: Ints
    """What its source calls it."""
    above: Ints
    """Its parent: an index into the nodes so far, or `ROOT`."""
    depth: Ints
    estimate: Floats
    """Natural logarithm of the estimate that it follows its parent."""
    score: Floats
    """Sum of the estimates of its path."""


class FrontierPlace(NamedTuple):
    """A node, or the root, whose continuations are to be weighed."""

    name: int
    """What its source calls it."""
    node: int
    """Its index, or `ROOT`."""
    depth: int
    score: float


@njit()
def new_frontier() -> Frontier:
    """Return room for `MAX_FRONTIER`."""
    return Frontier(
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.float32),
        np.empty(MAX_FRONTIER, np.float32),
    )


@njit()
def add(frontier: Frontier, waiting: int, name: int, place: FrontierPlace, estimate: float) -> int:
    """Add a continuation of a place to so many; return how many there are then. There must be
    room."""
    frontier.name[waiting], frontier.above[waiting] = name, place.node
    frontier.depth[waiting] = place.depth + 1
    frontier.estimate[waiting], frontier.score[waiting] = estimate, place.score + estimate
    return waiting + 1


@njit()
def best_of(frontier: Frontier, waiting: int) -> int:
    """Return the likeliest of the first so many; of equals the first."""
    best = 0
    for i in range(1, waiting):
        if frontier.score[i] > frontier.score[best]:
            best = i
    return best


@njit()
def remove(frontier: Frontier, at: int, waiting: int) -> int:
    """Put the last of so many in the place of one; return how many there are then."""
    last = waiting - 1
    frontier.name[at], frontier.above[at] = frontier.name[last], frontier.above[last]
    frontier.depth[at] = frontier.depth[last]
    frontier.estimate[at], frontier.score[at] = frontier.estimate[last], frontier.score[last]
    return last
