"""What became of the ids that a draft gave to its nodes (speculation.md, Mirror).

Leaves the nodes themselves to `mirror`. Unknown means dead, so dead ids take no room here.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.walk import Ids, Ints

UNKNOWN = np.iinfo(np.int64).min
"""State of an id that is dead, or was never heard of."""


class Names(NamedTuple):
    """Ids that are not dead, ascending, each with its state.

    A state is the index of a live node, or `committed_at(q)` for an id committed at position q.
    """

    id: Ids
    state: Ids

    @classmethod
    def empty(cls, size: int) -> "Names":
        """A table with room for `size` names."""
        return cls(np.empty(size, np.int64), np.empty(size, np.int64))


@njit()
def committed_at(position: int) -> int:
    """State of an id that turned out to be the committed token at `position`; its own inverse."""
    return -1 - position


@njit()
def state_of(names: Names, count: int, wanted: int) -> int:
    """State of the id `wanted`, by binary search."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if names.id[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < count and names.id[low] == wanted:
        return int(names.state[low])
    return UNKNOWN


@njit()
def forget(names: Names, count: int, position: int) -> int:
    """Drops ids committed before `position`; returns how many names are left."""
    kept = 0
    for i in range(count):
        state = names.state[i]
        if state >= 0 or committed_at(state) >= position:
            names.id[kept] = names.id[i]
            names.state[kept] = state
            kept += 1
    return kept


@njit()
def rename(names: Names, count: int, renumbered: Ints, path: Ints, position: int) -> int:
    """Follows names through a commit after `position`; returns how many names are left.

    `path` holds the nodes that became committed tokens, `renumbered` the survivors' new indices.
    """
    kept = 0
    for i in range(count):
        state = names.state[i]
        if state >= 0:
            step = _index_in(path, state)
            if step >= 0:
                state = committed_at(position + 1 + step)
            elif renumbered[state] >= 0:
                state = renumbered[state]
            else:
                continue
        names.id[kept] = names.id[i]
        names.state[kept] = state
        kept += 1
    return kept


@njit()
def _index_in(path: Ints, node: int) -> int:
    for step in range(path.shape[0]):
        if path[step] == node:
            return step
    return -1
