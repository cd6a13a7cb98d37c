"""Rows over a paged pool, for tests of GPU attention: the same contexts in whatever slots.

Leaves what is asserted to the tests.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.attention_inputs import ContextRows, group_rows, groups_of, make_scratch
from tests.kernel_outputs import normal, unwritten

MOST = 10
"""Blocks of a sequence, unless a test asks for more; they are dealt at random."""
SPARE = 4
"""Blocks of the pool that no sequence has."""
DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A row of sequence `line`: its prefix, then nodes (offsets) by depth."""

    prefix: int
    nodes: tuple[int, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """One layer's keys and values; what no row may see is NaN."""

    heads: int
    k: Tensor  # [kv_heads, slots, head_dim]
    v: Tensor
    tables: Tensor  # [sequences, most blocks]
    splits: int | None = 4
    """Most splits of a context; None: those of a GPU."""

    def put(self, line: int, offset: int, key: Tensor, value: Tensor) -> None:
        """Writes [kv_heads, head_dim] at an offset of a sequence."""
        slot = int(self.tables[line, offset // 64]) * 64 + offset % 64
        self.k[:, slot], self.v[:, slot] = key, value

    def fill(self, line: int, count: int, seed: int) -> None:
        """Writes random keys and values at the first `count` offsets of a sequence."""
        shape = (count, self.k.shape[0], self.k.shape[2])
        keys, values = (
            normal(*shape, dtype=self.k.dtype, device=str(self.k.device), seed=seed + i)
            for i in (0, 1)
        )
        for offset in range(count):
            self.put(line, offset, keys[offset], values[offset])

    def context(self, rows: list[Row]) -> ContextRows:
        """The rows' arrays on the pool's device."""
        chains = np.zeros((len(rows), DEEPEST), np.int32)
        for i, row in enumerate(rows):
            chains[i, : len(row.nodes)] = row.nodes
        line, prefix, depth = (
            np.array(values, np.int32)
            for values in zip(*((r.line, r.prefix, len(r.nodes)) for r in rows), strict=True)
        )
        groups = groups_of(line, prefix + depth, group_rows(self.heads, self.k.shape[0]))
        arrays = (line, prefix, chains, depth)
        tensors = (torch.from_numpy(array).to(self.k.device) for array in arrays)
        return ContextRows(*tensors, self.tables, torch.from_numpy(groups).to(self.k.device))

    def attend(self, q: Tensor, rows: list[Row], window: int = 0) -> Tensor:
        """[rows, heads, head_dim]."""
        device = str(self.k.device)
        out = unwritten(*q.shape, dtype=q.dtype, device=device)
        scratch = make_scratch(
            len(rows), self.heads, self.k.shape[0], q.shape[2], device, self.splits
        )
        scratch.sums.fill_(torch.nan)
        scratch.statistics.fill_(torch.nan)
        tree_attention(q, self.k, self.v, self.context(rows), 0.3, window, out, scratch)
        return out


def make_pool(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: str,
    seed: int = 0,
    most: int = MOST,
    splits: int | None = 4,
) -> Pool:
    """A pool of NaN, with two sequences' tables of `most` blocks in random order."""
    count = 2 * most + SPARE
    blocks = np.random.default_rng(seed).permutation(count)[: 2 * most].reshape(2, most)
    shape = (kv_heads, count * 64, head_dim)
    return Pool(
        heads,
        unwritten(*shape, dtype=dtype, device=device),
        unwritten(*shape, dtype=dtype, device=device),
        torch.from_numpy(blocks.astype(np.int32)).to(device),
        splits,
    )
