"""KV of a simulated model: the real block pool, with a context's hash in each slot.

A slot that is moved, shared or given away too early therefore shows as another text.
"""

from typing import Any

import numpy as np

from outrider.simulator.language import Contexts
from outrider.worker.kv.block_pool import BLOCK, Int32, blocks_for
from outrider.worker.kv.kv_cache import KVCache


class SimulatedKV(KVCache):
    """KV cache of `tokens` slots, rounded up to blocks, for sequences of up to `longest`."""

    def __init__(self, tokens: int, longest: int, **options: Any) -> None:
        super().__init__(blocks_for(tokens), longest, **options)
        slots = self.blocks * BLOCK
        self.contexts = Contexts(np.zeros(slots, np.uint64), np.zeros(slots, np.uint64))

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        for column in self.contexts:
            column[destinations] = column[sources]
