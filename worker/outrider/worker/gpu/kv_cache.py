"""KV cache of one engine on a device: keys and values of all layers, in blocks of 64 slots.

Leaves queued moves to `kv.kv_cache`, the owners of blocks to `kv.block_pool`, copying to
`outrider.kernels.gpu.cache`, pages to `device_pages`.
"""

import math

import numpy as np
import torch
from torch import Tensor

from outrider.worker.gpu.device_pages import DevicePages, DeviceRegion, NoPages
from outrider.worker.kv.block_pool import BLOCK, BlockMoves, Int32, blocks_for
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.model.config import ModelConfig

MOVED_TOGETHER = 8
"""Blocks that move through one temporary, which is small even where the device is full."""


class DeviceKVCache(KVCache):
    """Keys and values of `blocks` blocks, for sequences of up to `longest` slots."""

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        longest: int,
        dtype: torch.dtype,
        device: str,
        *,
        prefix_cache: bool = True,
    ) -> None:
        super().__init__(blocks, longest, prefix_cache=prefix_cache)
        self.k, self.v = self._arrays(config, dtype, device)

    def move_many(self, sources: Int32, destinations: Int32) -> None:
        """Move any number of slots, through a temporary and without a launch of their own."""
        here, there = (torch.from_numpy(x).to(self.k.device) for x in (sources, destinations))
        for kept in (self.k, self.v):
            kept.index_copy_(2, there.long(), kept.index_select(2, here))

    def _arrays(
        self, config: ModelConfig, dtype: torch.dtype, device: str
    ) -> tuple[Tensor, Tensor]:
        """Return zeros for keys and for values, [layers, key heads, slots, head_dim]."""
        shape = config.layers, config.kv_heads, self.blocks * BLOCK, config.head_dim
        k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        return k, v


class PagedKVCache(DeviceKVCache):
    """KV cache that grows and shrinks by pages: `unit` blocks fill whole pages of each range.

    Each key head of a layer has a range of addresses of its own, at whose end pages come and go.
    `blocks` are rounded down to units, but hold one sequence of the longest; `most`, for which it
    has addresses, up.
    """

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        longest: int,
        dtype: torch.dtype,
        pages: DevicePages,
        *,
        most: int | None = None,
        prefix_cache: bool = True,
    ) -> None:
        """Raises `NoPages` if there is no memory for `blocks`."""
        self._driver = pages.driver
        self._block_bytes = BLOCK * config.head_dim * dtype.itemsize
        self.unit = unit = math.lcm(pages.page, self._block_bytes) // self._block_bytes
        """Blocks that it grows and shrinks by."""
        blocks = max(blocks // unit, -(-blocks_for(longest) // unit)) * unit
        self.most = -(-max(blocks, most or 0) // unit) * unit
        """Blocks that it has addresses for."""
        self._ranges = config.layers * config.kv_heads
        size = self._ranges * self.most * self._block_bytes
        self._regions = [DeviceRegion(pages, size) for _ in range(2)]
        device = pages.driver.device
        super().__init__(config, blocks, longest, dtype, device, prefix_cache=prefix_cache)
        self._clear(0, blocks)

    @property
    def mapped_pages(self) -> int:
        """Pages that have memory."""
        return sum(region.mapped_pages for region in self._regions)

    @property
    def unit_pages(self) -> int:
        """Pages by which it grows with each `unit`."""
        return 2 * self._ranges * self.unit * self._block_bytes // self._regions[0].pages.page

    @property
    def unit_bytes(self) -> int:
        """Bytes by which it grows with each `unit`."""
        return self.unit_pages * self._regions[0].pages.page

    def expand(self, count: int) -> None:
        """Add units of blocks at the end; raises `ValueError` beyond `most`, and `NoPages`."""
        first, last = self.blocks, self.blocks + count
        if last > self.most:
            raise ValueError(f"{last} blocks: there are addresses for {self.most}")
        try:
            self._map(first, last)
        except NoPages:
            self._unmap(first, last)
            raise
        self._clear(first, last)
        super().expand(count)

    def contract(self, count: int) -> BlockMoves | None:
        """Take away units of blocks at the end and give up their pages; what lies in them is moved
        at once."""
        before = self.blocks
        moves = super().contract(count)
        if moves is None:
            return None
        self._driver.settle()
        self.move_many(*self.queued())  # by slots as they were
        for at in range(0, len(moves.sources), MOVED_TOGETHER):  # none of them is read and written
            part = slice(at, at + MOVED_TOGETHER)
            self.move_many(slots_of(moves.sources[part]), slots_of(moves.destinations[part]))
        self._driver.settle()
        self._unmap(self.blocks, before)
        return moves

    def _arrays(
        self, config: ModelConfig, dtype: torch.dtype, device: str
    ) -> tuple[Tensor, Tensor]:
        """Return addresses for keys and for values of `most` blocks; its own have pages."""
        self._map(0, self.blocks)
        shape = config.layers, config.kv_heads, self.most * BLOCK, config.head_dim
        k, v = (region.view().view(dtype).view(shape) for region in self._regions)
        return k, v

    def _map(self, first: int, last: int) -> None:
        each = self._block_bytes
        for region in self._regions:
            for at in self._starts():
                region.map(at + first * each, at + last * each)

    def _unmap(self, first: int, last: int) -> None:
        each = self._block_bytes
        for region in self._regions:
            for at in self._starts():
                region.unmap(at + first * each, at + last * each)

    def _clear(self, first: int, last: int) -> None:
        """Fill with zeros: pages hold what their last owner wrote, and that may be no number."""
        for kept in (self.k, self.v):
            kept[:, :, first * BLOCK : last * BLOCK].zero_()
        self._driver.settle()

    def _starts(self) -> range:
        """First bytes of the ranges."""
        step = self.most * self._block_bytes
        return range(0, self._ranges * step, step)


def slots_of(blocks: Int32) -> Int32:
    """Return all slots of blocks, [blocks * 64]."""
    slots: Int32 = np.add.outer(blocks * np.int32(BLOCK), np.arange(BLOCK, dtype=np.int32))
    return slots.reshape(-1)
