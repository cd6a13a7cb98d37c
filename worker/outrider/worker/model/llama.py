"""The Llama family's forward pass: weights packed for one numeric path, over one KV pool.

Leaves files to the loader, arithmetic to `outrider.kernels`, sampling and the meaning of rows to
the engine.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.kernels.layers import Batch, run
from outrider.kernels.linear import Kind, Path, kind_of
from outrider.worker.kv_pool import KVPool
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.packing import make_buffers, pack_model
from outrider.worker.rows import Rows
from outrider.worker.team import Team


class Llama:
    """One model, ready to run up to `max_rows` rows a pass.

    `kind` defaults to what the machine does best on `path`.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        path: Path,
        pool: KVPool,
        max_rows: int,
        threads: int = 1,
        kind: Kind | None = None,
    ) -> None:
        self.config = config
        self.path = path
        self.kind = kind or kind_of(path)
        self.pool = pool
        self.max_rows = max_rows
        self._weights = pack_model(config, weights, self.kind, pool.longest)
        self._buffers = make_buffers(config, self.kind, max_rows, pool.longest)
        self._sizes = (config.heads, config.sliding_window or 0, config.hidden)
        self._epsilon = np.float32(config.norm_eps)
        self._team = Team(threads)

    def close(self) -> None:
        """Ends the threads; the model cannot run any more."""
        self._team.close()

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """Logits [len(rows.outputs), config.outputs]; a view, valid until the next call."""
        if not 0 < rows.count <= self.max_rows:
            raise ValueError(f"{rows.count} rows: a pass takes 1 to {self.max_rows}")
        batch = Batch(
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
        self._team.run(
            run, self._weights, self._buffers, batch, self.pool.k_t, self.pool.v,
            self._sizes, self._epsilon,
        )  # fmt: skip
        return self._buffers.logits[: len(rows.outputs), : self.config.outputs]
