"""Inputs of attention: what rows see, their groups, and the buffers between splits of a context.

Leaves reading keys to `attention`, and which rows run to the engine.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

TILE = 64
"""Positions of a tile of keys: slots of a block of the pool."""
LINES = 64
"""Most lines (rows x heads of a key head) of a tile of queries; at 64 Hopper's wgmma serves it."""
GROUP_ROWS = 16


@dataclass(frozen=True, slots=True)
class ContextRows:
    """Context of n rows; int32 tensors on the device, n and the groups padded as needed."""

    sequence: Tensor  # [n] line of `tables`
    prefix: Tensor  # [n] committed offsets visible; 0 with depth 0: a padded row, whose result is 0
    ancestors: Tensor  # [n, deepest] offsets in depth order; a node row's own is the last
    depth: Tensor  # [n] ancestors in use, at most 64
    tables: Tensor  # [sequences, most blocks] block of 64 slots by offset // 64
    groups: Tensor  # [groups, 2] first row and number of rows, as `groups_of` cuts them


@dataclass(frozen=True, slots=True)
class AttentionScratch:
    """Sums of splits until they are combined; `make_scratch` sizes it."""

    sums: Tensor  # float32 [rows, heads, splits + 1, head_dim]
    statistics: Tensor  # float32 [rows, heads, splits + 1, 2]: largest score in bits, and weight

    @property
    def splits(self) -> int:
        """Most splits of a row, the tail left out; a result depends on it."""
        return self.sums.shape[2] - 1


def splits_of(kv_heads: int) -> int:
    """Return the splits that give a GPU of 132 processors two programs each: 16 to 64."""
    return max(16, min(64, 256 // int(triton.next_power_of_2(kv_heads))))


def make_scratch(
    rows: int, heads: int, kv_heads: int, head_dim: int, device: str, splits: int | None = None
) -> AttentionScratch:
    """Return buffers for passes of at most `rows` rows, shared by all layers of a model."""
    parts = (splits or splits_of(kv_heads)) + 1
    return AttentionScratch(
        torch.empty((rows, heads, parts, head_dim), dtype=torch.float32, device=device),
        torch.empty((rows, heads, parts, 2), dtype=torch.float32, device=device),
    )


def group_rows(heads: int, kv_heads: int) -> int:
    """Return the rows that share a tile of queries, by the model's shape alone."""
    return min(GROUP_ROWS, LINES // int(triton.next_power_of_2(heads // kv_heads)))


def groups_of(
    sequence: NDArray[np.int32], lengths: NDArray[np.int32], rows: int
) -> NDArray[np.int32]:
    """Return groups of at most `rows` rows side by side, of one sequence and of nearly one length.

    sequence, lengths (prefix + depth): [n]; returns [groups, 2]: first row, number of rows.
    Runners compile it by numba, which the kernels do without.
    """
    groups = np.empty((sequence.shape[0], 2), np.int32)
    count = first = shortest = longest = 0
    for row in range(sequence.shape[0]):
        shortest, longest = min(shortest, lengths[row]), max(longest, lengths[row])
        fits = row - first < rows and longest - shortest < TILE
        if row == 0 or not (fits and sequence[row] == sequence[first]):
            first, shortest, longest, count = row, lengths[row], lengths[row], count + 1
        groups[count - 1] = first, row + 1 - first
    return groups[:count]
