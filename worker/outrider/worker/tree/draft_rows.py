"""Rows of one draft pass, in arrays that are laid out once; trees write theirs one after another.

Leaves whose rows they are to the draft's scheduler, and what each row sees to `draft_table`.
"""

from typing import Any, NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import handle
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.tree.growth import Ids, Ints

NO_SLOT = -1
"""Padding of ancestors."""
ROWS, OUTPUTS, TREES = range(3)
"""Places of `RowArrays.used`: rows, outputs and trees so far."""


class RowArrays(NamedTuple):
    """Columns of the rows, as `model.rows.Rows` has them; `leaf` to `sampled_at` by output."""

    token: Ints
    position: Ints
    slot: Ints
    """Slot of the KV cache where the row's own KV goes."""
    tree: Ints
    """Number of the row's tree in this pass."""
    prefix: Ints
    depth: Ints
    output: Ints
    """Rows whose children are wanted."""
    leaf: Ints
    """Nodes that they expand; `ROOT` for the root."""
    offset: Ints
    """Offsets of their KV in the session's block table."""
    sampled_at: Ints
    """Positions of their children."""
    ancestors: Ints
    """[rows, deepest] offsets, then `NO_SLOT`."""
    used: Ids


class RowColumns(NamedTuple):
    """What is in use of the columns of `RowArrays`, in its order."""

    token: Ints
    position: Ints
    slot: Ints
    tree: Ints
    prefix: Ints
    depth: Ints
    output: Ints
    leaf: Ints
    offset: Ints
    sampled_at: Ints
    ancestors: Ints


class DraftRows:
    """Room for `capacity` rows of up to `deepest` ancestors."""

    def __init__(self, capacity: int, deepest: int) -> None:
        columns = np.empty((len(RowColumns._fields) - 1, capacity), np.int32)
        ancestors = np.full((capacity, deepest), NO_SLOT, np.int32)
        used = np.zeros(3, np.int64)
        self._used: Any = memoryview(used.data)  # read faster than the array
        self._arrays = RowArrays._make([*columns, ancestors, used])
        self._views: dict[tuple[int, int], RowColumns] = {}
        """By rows and outputs."""
        self.handle = handle(self._arrays)
        """Rows as compiled functions write them."""

    def take(self) -> RowColumns:
        """Return the rows that were written, valid until others are, and begin the next pass."""
        used = self._used
        rows, outputs = used[ROWS], used[OUTPUTS]
        used[ROWS] = used[OUTPUTS] = used[TREES] = 0
        views = self._views.get((rows, outputs))
        if views is None:
            views = self._views[rows, outputs] = self._view(rows, outputs)
        return views

    def _view(self, rows: int, outputs: int) -> RowColumns:
        a = self._arrays
        by_row = (a.token, a.position, a.slot, a.tree, a.prefix, a.depth)
        by_output = (a.output, a.leaf, a.offset, a.sampled_at)
        return RowColumns._make(
            [
                *(column[:rows] for column in by_row),
                *(column[:outputs] for column in by_output),
                a.ancestors[:rows],
            ]
        )


@njit()
def writable_slot(block_table: Ints, published: int, offset: int) -> int:
    """Return the pool's slot of an offset that is to be written, as `BlockTable.writable`."""
    block = offset // BLOCK
    if block < published or block >= block_table.shape[0]:
        raise ValueError("a row's KV would go to an offset that may not be written")
    return int(block_table[block]) * BLOCK + offset % BLOCK
