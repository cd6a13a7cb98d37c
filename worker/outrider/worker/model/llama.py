"""The Llama family's forward pass, or one stage of it: packed weights over one KV cache.

Leaves files to `load`, arithmetic to `outrider.kernels.cpu`, sampling and the meaning of rows
(prefill, decode, verify) to the engine.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import ALONE, SharedSums, Thread, make_barrier
from outrider.kernels.cpu.elementwise import GELU_TANH, SILU
from outrider.kernels.cpu.forward import (
    Batch,
    ModelShape,
    PassModel,
    add_normed,
    attention,
    embed,
    feed_forward,
    head,
    sums,
)
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.pass_threads import run_together
from outrider.kernels.jit.handle import handle
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import Activation, ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.matrix import Matrix
from outrider.worker.model.movable_weights import MovableWeights
from outrider.worker.model.packing import Pack, make_buffers, pack_model
from outrider.worker.model.pass_threads import PassThreads
from outrider.worker.model.rows import Rows

Floats = NDArray[np.float32]
GATES = {Activation.SILU: SILU, Activation.GELU_TANH: GELU_TANH}


@dataclass(frozen=True, slots=True)
class PassOptions:
    """Execution of a model's passes."""

    threads: int = 1
    kind: NumericKind | None = None
    """None: what the machine does best on the path."""
    first_token: int = 0
    """Id of the embedding's first row: a rank has the embeddings of some ids."""
    layers: LayerRange | None = None
    """Layers of one stage; None: all."""
    host_folder: Path | None = None
    """Folder for weights that leave their memory; None: they never do."""
    pack: Pack = pack_model
    """What packs the weights, or finds them packed."""


class Llama:
    """One model, one rank's share or one stage of it, ready to run `row_capacity` rows a pass.

    `config` counts the layers that it has itself.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Matrix],
        path: NumericPath,
        kv_cache: HostKVCache,
        row_capacity: int,
        options: PassOptions = PassOptions(),
    ) -> None:
        self.config = config
        self.path = path
        self.kv_cache = kv_cache
        self.row_capacity = row_capacity
        kind = options.kind or kind_of(path)
        self.layers = layers = options.layers or LayerRange.whole(config)
        self._outputs = config.outputs if layers.has_head else 0
        self._weights = options.pack(config, weights, kind, kv_cache.longest, layers)
        self.movable: MovableWeights | None = None
        """Its weights, if they may leave their memory."""
        if options.host_folder is not None:
            self.movable = MovableWeights(self._weights, options.host_folder)
            self._weights = self.movable.weights
        self._buffers = make_buffers(config, kind, kv_cache, row_capacity, self._outputs)
        self._shape = ModelShape(
            heads=config.heads,
            windows=np.array([config.window_of(i) for i in range(config.layers)], np.int32),
            hidden=config.hidden,
            epsilon=np.float32(config.norm_eps),
            embedding_scale=np.float32(config.embedding_scale),
            query_scale=np.float32(1) / np.sqrt(np.float32(config.query_size or config.head_dim)),
            gate=GATES[config.activation],
            first_token=options.first_token,
            embeds=layers.embeds,
            has_head=layers.has_head,
        )
        self._model = handle(PassModel(self._weights, self._buffers, self._shape))
        self.threads = options.threads
        self.pass_threads = PassThreads((self._model,), (options.threads,))
        (self.team,) = self.pass_threads.teams
        self._pool = ThreadPool(options.threads)

    def close(self) -> None:
        """End the threads; the model cannot run any more."""
        self.pass_threads.close()
        self._pool.close()
        if self.movable is not None:
            self.movable.close()

    def share_threads(self, other: "Llama") -> None:
        """Run passes on the same threads as another model; their passes take turns."""
        self.pass_threads.close()
        other.pass_threads.close()
        shared = PassThreads((self._model, other._model), (self.threads, other.threads))
        self.pass_threads, other.pass_threads = shared, shared
        self.team, other.team = shared.teams

    @property
    def compiled(self) -> Any:
        """Handle of its `PassModel`; `team` has the threads that run it."""
        return self._model

    @property
    def sums(self) -> int:
        """Sums over ranks in a pass; a stage that does not embed has one less."""
        return sums(self.config.layers) - (not self.layers.embeds)

    def forward(self, rows: Rows) -> Floats:
        """Return logits [len(rows.outputs), config.outputs]; a view, valid until the next call."""
        return self.forward_shared(rows, ALONE)[:, : self._outputs]

    def forward_shared(
        self, rows: Rows, shared: SharedSums, hidden: Floats | None = None
    ) -> Floats:
        """Return this rank's columns of logits [len(rows.outputs), padded]; a view, as `forward`.

        All ranks of this machine do the same with the same rows. `hidden` and what a stage without
        head returns are as for `forward_layers`, and the same on all ranks.
        """
        batch = self._begin(rows, hidden)
        run_together(self.team, self._model, batch, shared)
        return self._results(rows)

    def forward_layers(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run one stage's layers; return a view, valid until the next call.

        `hidden` [rows, config.hidden] are the hidden states that the stage before returned; the
        first stage takes None and embeds. The last returns logits as `forward`, the others hidden
        states like those that they take.
        """
        results = self.forward_shared(rows, ALONE, hidden)
        return results[:, : self._outputs] if self.layers.has_head else results

    def forward_part(
        self, rows: Rows, add: Callable[[Floats, Floats], None], hidden: Floats | None = None
    ) -> Floats:
        """Run `forward_shared` for ranks that share no memory, which add up in `add`.

        add(sums, part), both [rows, padded hidden], is called after the embedding and after each
        half layer; it adds the parts of all ranks to the sums, to the same bits on each.
        """
        batch, call = self._begin(rows, hidden), self._pool.run
        w, b, shape = self._weights, self._buffers, self._shape
        residual, part = b.residual[: rows.count], b.update[: rows.count]
        if self.layers.embeds:
            residual[:] = 0
            call(embed, w, part, batch.tokens, shape)
            add(residual, part)
        for layer in range(self.config.layers):
            call(attention, w, b, batch, layer, shape)
            self._add_update(add, rows.count, w.attention_update_norm[layer])
            call(feed_forward, w, b, rows.count, layer, shape)
            self._add_update(add, rows.count, w.ffn_update_norm[layer])
        if self.layers.has_head:
            call(head, w, b, batch.outputs, shape)
        return self._results(rows)

    def _add_update(self, add: Callable[[Floats, Floats], None], count: int, norm: Floats) -> None:
        """Add the parts of all ranks to the residual, after their norm if there is one."""
        b = self._buffers
        residual, work, part = b.residual[:count], b.work[:count], b.update[:count]
        if not norm.size:
            add(residual, part)
            return
        work[:] = 0
        add(work, part)
        self._pool.run(add_normed, b, count, norm, self._shape)

    def features(self, outputs: int) -> Floats:
        """Return the last pass's hidden states after the final norm, [outputs, config.hidden], of
        the rows whose logits it returned; a view, valid as long as they are."""
        return self._buffers.work[:outputs, : self.config.hidden]

    def _begin(self, rows: Rows, hidden: Floats | None) -> Batch:
        """Put hidden states where a pass finds them; raises `ValueError` where they are missing or
        not wanted, and for too many rows."""
        if (hidden is None) is not self.layers.embeds:
            raise ValueError(f"hidden states are for stages behind the first: {self.layers}")
        batch = self._batch(rows)
        if hidden is not None:
            self._buffers.residual[: rows.count, : self.config.hidden] = hidden
        return batch

    def _results(self, rows: Rows) -> Floats:
        """Return what a pass over `rows` has left."""
        if self.layers.has_head:
            return self._buffers.logits[: len(rows.outputs)]
        return self._buffers.residual[: rows.count, : self.config.hidden]

    def _batch(self, rows: Rows) -> Batch:
        """Convert rows, and take the moves queued before them; both as compiled code takes them.

        Raises `ValueError` for too many rows.
        """
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
            *self.kv_cache.queued(),
        )


class ThreadPool:
    """Threads that run one compiled call together, the caller's among them.

    The call itself takes each thread's share of the work; further threads sleep between calls, and
    start with the first. For ranks on several machines; whole passes have `PassThreads`.
    """

    def __init__(self, threads: int) -> None:
        barrier = make_barrier()
        self._own, *self._others = (Thread(barrier, number, threads) for number in range(threads))
        self._executor = ThreadPoolExecutor(max(1, len(self._others)), "pass")

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call function(*arguments, thread) on every thread and wait for all."""
        calls = [self._executor.submit(function, *arguments, other) for other in self._others]
        function(*arguments, self._own)
        for call in calls:
            call.result()

    def close(self) -> None:
        """End the further threads."""
        self._executor.shutdown()
