"""Executor of a stage on the CPU: its layers of the model, over its KV cache.

Slots are the leader's, so the cache's own block pool gives out nothing here.
"""

import numpy as np

from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import Floats, Ints


class LayerExecutor:
    """A stage's layers and their KV."""

    def __init__(self, model: Llama) -> None:
        """`model`: the layers of one stage, or all of them."""
        self._model = model

    @property
    def kv_cache(self) -> HostKVCache:
        return self._model.kv_cache

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run the layers and write the rows' KV; see `stage.Executor`."""
        return self._model.forward_layers(rows, hidden)

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy KV between slots over all layers, as if all were read before any is written."""
        self.kv_cache.move_slots(np.array(sources, np.int32), np.array(destinations, np.int32))
