"""Executor of a stage on the CPU: its layers of the model, over its KV cache.

Slots are the leader's, so the cache's own block pool gives out nothing here.
"""

from typing import Protocol

import numpy as np

from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import Floats, Ints


class LayerModel(Protocol):
    """The layers of one stage, or all of them: `model.llama.Llama`, alone or over ranks."""

    @property
    def kv_cache(self) -> HostKVCache: ...
    @property
    def path(self) -> str: ...
    def forward_layers(self, rows: Rows, hidden: Floats | None) -> Floats: ...
    def close(self) -> None: ...


class LayerExecutor:
    """A stage's layers and their KV."""

    def __init__(self, model: LayerModel) -> None:
        self.model = model

    @property
    def kv_cache(self) -> HostKVCache:
        return self.model.kv_cache

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run the layers and write the rows' KV; see `stage.Executor`."""
        return self.model.forward_layers(rows, hidden)

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy KV between slots over all layers, as if all were read before any is written."""
        slots = np.array(sources, np.int32), np.array(destinations, np.int32)
        self.kv_cache.move_slots(*slots)
        self.kv_cache.moved(*slots)

    def close(self) -> None:
        """End the threads and processes of the model."""
        self.model.close()
