"""Rows of one forward pass: prefill rows of a prompt, decode and verify rows of a tree.

Each row has its slot in the KV cache and what it may see. Leaves requests and trees to the
schedulers that build them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.kv.block_pool import BlockTable

Int32 = NDArray[np.int32]

CHUNK = 128
"""Positions of a pass by the vendor's library, whose first is a multiple of it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows of one or more sequences, those of a sequence side by side.

    A row sees its sequence's first `prefix` offsets, then its `ancestors`.
    """

    tokens: Int32  # [n] token ids
    positions: Int32  # [n] rotary positions
    slots: Int32  # [n] slots of the KV cache where each row's own KV is written
    sequence: Int32  # [n] line of `tables`
    prefix: Int32  # [n] committed offsets visible; a prefill row's own offset is among them
    ancestors: Int32  # [n, deepest] offsets in depth order; a node row's own is the last
    depth: Int32  # [n] ancestors in use
    outputs: Int32  # [m] indices of the rows whose logits are wanted
    tables: Int32  # [sequences, most blocks] block tables: block of 64 slots by offset // 64
    by_library: bool = False
    """True for a prompt's rows within one chunk whose linear layers the vendor's library computes,
    on a GPU: a pass of their own."""

    @property
    def count(self) -> int:
        return len(self.tokens)


def prompt_rows(
    tokens: Int32,
    start: int,
    block_table: BlockTable,
    wants_output: bool,
    by_library: bool = False,
) -> Rows:
    """Build prefill rows for positions start, start + 1, …; logits of the last on demand."""
    n = len(tokens)
    positions = np.arange(start, start + n, dtype=np.int32)
    return Rows(
        tokens=tokens,
        positions=positions,
        slots=block_table.writable(positions),
        sequence=np.zeros(n, np.int32),
        prefix=positions + np.int32(1),
        ancestors=np.zeros((n, 1), np.int32),
        depth=np.zeros(n, np.int32),
        outputs=np.array([n - 1] if wants_output else [], np.int32),
        tables=block_table.table[None],
        by_library=by_library,
    )


def tree_rows(
    tokens: Int32,
    offsets: Int32,
    block_table: BlockTable,
    prefix: Int32,
    ancestors: Int32,
    depth: Int32,
) -> Rows:
    """Build rows of one tree, whose KV goes to `offsets` [n]; every row's logits are wanted.

    A row stands behind all that it sees but itself: at position prefix + depth - 1. So the root
    whose KV a draft lacks is no row here: it is a prefill row.
    """
    n = len(tokens)
    return Rows(
        tokens=tokens,
        positions=prefix + depth - np.int32(1),
        slots=block_table.writable(offsets),
        sequence=np.zeros(n, np.int32),
        prefix=prefix,
        ancestors=ancestors,
        depth=depth,
        outputs=np.arange(n, dtype=np.int32),
        tables=block_table.table[None],
    )


def joined(parts: Sequence[Rows]) -> Rows:
    """Join the parts of one pass: rows, outputs and sequences in the order of `parts`.

    Parts must be of different sequences: no row sees what another part's rows write.
    """
    if len(parts) == 1:
        return parts[0]
    rows = _starts([part.count for part in parts])
    sequences = _starts([len(part.tables) for part in parts])
    return Rows(
        tokens=np.concatenate([part.tokens for part in parts]),
        positions=np.concatenate([part.positions for part in parts]),
        slots=np.concatenate([part.slots for part in parts]),
        sequence=np.concatenate([p.sequence + s for p, s in zip(parts, sequences, strict=True)]),
        prefix=np.concatenate([part.prefix for part in parts]),
        ancestors=_stacked([part.ancestors for part in parts]),
        depth=np.concatenate([part.depth for part in parts]),
        outputs=np.concatenate([p.outputs + r for p, r in zip(parts, rows, strict=True)]),
        tables=_stacked([part.tables for part in parts]),
    )


def _starts(counts: list[int]) -> Int32:
    """Return where each of several runs starts in all of them."""
    return np.cumsum([0, *counts[:-1]], dtype=np.int32)


def _stacked(arrays: list[Int32]) -> Int32:
    """Stack the lines of all, padded with zeros to the widest."""
    counts = [len(array) for array in arrays]
    stacked = np.zeros((sum(counts), max(array.shape[1] for array in arrays)), np.int32)
    for array, start in zip(arrays, _starts(counts), strict=True):
        stacked[start : start + len(array), : array.shape[1]] = array
    return stacked
