"""The Llama family's forward pass: weights packed for one numeric path, over one KV pool.

Leaves files to the loader, arithmetic to `outrider.kernels`, sampling and the meaning of rows to
the engine.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.forward import (
    ALONE,
    Batch,
    Shared,
    attention,
    embed,
    feed_forward,
    head,
    run,
)
from outrider.kernels.cpu.linear import NumericKind, NumericPath, kind_of
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.packing import make_buffers, pack_model
from outrider.worker.model.rows import Rows
from outrider.worker.model.threads import ThreadPool

Floats = NDArray[np.float32]


class Llama:
    """One model, or one rank's share of it, ready to run up to `row_capacity` rows a pass.

    `kind` defaults to what the machine does best on `path`; `first_token` is the id of the
    embedding's first row.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Floats],
        path: NumericPath,
        kv_cache: HostKVCache,
        row_capacity: int,
        threads: int = 1,
        kind: NumericKind | None = None,
        first_token: int = 0,
    ) -> None:
        self.config = config
        self.path = path
        self.kind = kind or kind_of(path)
        self.kv_cache = kv_cache
        self.row_capacity = row_capacity
        self._weights = pack_model(config, weights, self.kind, kv_cache.longest)
        self._buffers = make_buffers(config, self.kind, row_capacity, kv_cache.longest)
        self._sizes = (config.heads, config.sliding_window or 0, config.hidden, first_token)
        self._epsilon = np.float32(config.norm_eps)
        self._team = ThreadPool(threads)

    def close(self) -> None:
        """Ends the threads; the model cannot run any more."""
        self._team.close()

    def forward(self, rows: Rows) -> Floats:
        """Logits [len(rows.outputs), config.outputs]; a view, valid until the next call."""
        return self.forward_shared(rows, ALONE)[:, : self.config.outputs]

    def forward_shared(self, rows: Rows, shared: Shared) -> Floats:
        """Logits of this rank's columns [len(rows.outputs), padded]; a view, as of `forward`.

        All ranks of this machine do the same with the same rows.
        """
        batch = self._batch(rows)
        self._team.run(
            run, self._weights, self._buffers, batch, self.kv_cache.k_t, self.kv_cache.v,
            self._sizes, self._epsilon, shared,
        )  # fmt: skip
        return self._buffers.logits[: len(rows.outputs)]

    def forward_part(self, rows: Rows, add: Callable[[Floats, Floats], None]) -> Floats:
        """`forward_shared` for ranks of several machines, who add up in `add`.

        add(residual, part), both [rows, padded hidden], is called after the embedding and after
        each half layer; it adds the parts of all ranks to the residual, to the same bits on each.
        """
        batch = self._batch(rows)
        call, w, b = self._team.run, self._weights, self._buffers
        sizes, epsilon = self._sizes, self._epsilon
        residual, part = b.residual[: rows.count], b.update[: rows.count]
        residual[:] = 0
        call(embed, w, part, batch.tokens, sizes)
        add(residual, part)
        for layer in range(self.config.layers):
            k_t, v = self.kv_cache.k_t, self.kv_cache.v
            call(attention, layer, w, b, batch, k_t, v, sizes, epsilon)
            add(residual, part)
            call(feed_forward, layer, w, b, rows.count, sizes, epsilon)
            add(residual, part)
        call(head, w, b, batch.outputs, sizes, epsilon)
        return b.logits[: len(rows.outputs)]

    def _batch(self, rows: Rows) -> Batch:
        """What compiled code takes; raises `ValueError` for too many rows."""
        if not 0 < rows.count <= self.row_capacity:
            raise ValueError(f"{rows.count} rows: a pass takes 1 to {self.row_capacity}")
        return Batch(
            rows.tokens,
            rows.positions,
            rows.slots,
            rows.sequence,
            rows.prefix,
            rows.ancestors,
            rows.depth,
            rows.outputs,
            rows.tables,
        )
