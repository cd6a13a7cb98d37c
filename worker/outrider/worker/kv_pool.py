"""The KV pool of one engine: keys and values of all layers, cut into one region per sequence.

What lies in which slot of a region is the sequence's business.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.kernels import cache
from outrider.kernels.linear import aligned
from outrider.worker.model.config import ModelConfig

REGION_MULTIPLE = 64
"""Regions start at multiples of the attention kernel's tile."""
PAD_SLOTS = 16
"""Unused slots: a pitch of keys that is a power of two would put a head in few cache sets."""


class KVPool:
    """Preallocated keys and values of `sequences` regions of `max_context` slots or more."""

    def __init__(self, config: ModelConfig, sequences: int, max_context: int) -> None:
        self.region = -(-max_context // REGION_MULTIPLE) * REGION_MULTIPLE
        """Slots of one region: `max_context`, rounded up to a multiple of 64."""
        self.sequences = sequences
        slots = self.region * sequences + PAD_SLOTS
        layers, heads, size = config.layers, config.kv_heads, config.head_dim
        self.k_t: NDArray[np.float32] = aligned((layers, heads, size, slots), np.float32)
        self.v: NDArray[np.float32] = aligned((layers, heads, slots, size), np.float32)
        self._free = list(range(sequences - 1, -1, -1))

    def allocate(self) -> int | None:
        """First slot of a free region, or None when all are taken."""
        return self._free.pop() * self.region if self._free else None

    def free(self, base: int) -> None:
        """Gives the region back; raises `ValueError` unless `base` was allocated."""
        number, rest = divmod(base, self.region)
        if rest or not 0 <= number < self.sequences or number in self._free:
            raise ValueError(f"slot {base} does not start an allocated region")
        self._free.append(number)

    def move(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        """Copies slots over all layers, as if all were read before any is written."""
        cache.move(
            self.k_t,
            self.v,
            np.array(sources, np.int32),  # one memory layout: one compiled version
            np.array(destinations, np.int32),
        )

    @property
    def used(self) -> int:
        """Slots in allocated regions."""
        return (self.sequences - len(self._free)) * self.region
