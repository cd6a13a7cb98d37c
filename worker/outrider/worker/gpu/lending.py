"""How a draft on its target's device lends its memory: by pages that both take from one owner.

Leaves pages to `device_pages`, when they move to `launch.memory_lender`.
"""

from dataclasses import dataclass

import torch

from outrider.worker.gpu.device_pages import DevicePages
from outrider.worker.gpu.kv_cache import PagedKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.movable_weights import MovableDeviceWeights
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.model.config import ModelConfig

MOST_GROWTH = 2
"""Most blocks of a borrower, over those of its own: addresses cost nothing, graphs keep them."""


@dataclass(frozen=True, slots=True)
class Lending:
    """One model's part in it."""

    pages: DevicePages
    """Pages of the device that both models are on."""
    lends: bool
    """True for the draft, whose weights may leave; the other's KV may grow."""

    def movable(self, weights: DeviceWeights) -> MovableDeviceWeights | None:
        """Return weights that can leave; None where they stay. Raises `NoPages`."""
        return MovableDeviceWeights(weights, self.pages) if self.lends else None

    def kv_cache(
        self,
        config: ModelConfig,
        blocks: int,
        longest: int,
        dtype: torch.dtype,
        usable: int,
        *,
        prefix_cache: bool,
    ) -> PagedKVCache:
        """Return KV of `blocks` blocks, with addresses for more where it borrows; raises `NoPages`.

        `usable`: blocks that all sequences can use together.
        """
        most = None if self.lends else min(MOST_GROWTH * blocks, usable)
        return PagedKVCache(
            config, blocks, longest, dtype, self.pages, most=most, prefix_cache=prefix_cache
        )


def lent_blocks(borrower: KVCache, lender: KVCache, model: object) -> int:
    """Return the blocks by which the borrower's KV grows while the lender, whose weights are those
    of `model`, has no memory; 0 where nothing can be lent."""
    if not isinstance(borrower, PagedKVCache) or not isinstance(lender, PagedKVCache):
        return 0
    assert isinstance(model, GpuModel)
    assert model.movable is not None
    units = (model.movable.mapped_pages + lender.mapped_pages) // borrower.unit_pages
    return min(units * borrower.unit, borrower.most - borrower.blocks)
