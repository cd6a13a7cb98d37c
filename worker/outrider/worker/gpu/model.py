"""Model on a device: passes are staged and launched, without a wait until results are wanted.

Leaves what runs in a pass to `forward`, its inputs to `input_buffers`, and sampling to the runners.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention_inputs import group_rows
from outrider.kernels.gpu.cache import MAX_MOVES
from outrider.worker.errors import DeviceLost
from outrider.worker.gpu.cuda_graphs import graphs_for
from outrider.worker.gpu.forward import Forward, PassLimits, RankShare
from outrider.worker.gpu.input_buffers import InputBuffers, InputShape
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.movable_weights import MovableDeviceWeights
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.kv.block_pool import BLOCK, Int32
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import CHUNK, Rows

P = ParamSpec("P")
T = TypeVar("T")
LAUNCH_FAILED = "Triton Error [CUDA]"
"""Beginning of what Triton says of a launch that CUDA refuses."""
NO_MOVES = (np.empty(0, np.int32), np.empty(0, np.int32))


class GpuModel:
    """One model, or one rank's share of it, for passes within `limits`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DeviceWeights,
        path: str,
        kv_cache: DeviceKVCache,
        limits: PassLimits,
        share: RankShare | None = None,
        movable: MovableDeviceWeights | None = None,
    ) -> None:
        """`path`: how the weights are held, in words; `share`: None, the model is whole; `movable`:
        what can move the weights; None: they stay."""
        self.config = config
        self.movable = movable
        self.path = path
        self.kv_cache = kv_cache
        self.row_capacity = limits.rows
        self.device = str(weights.embedding.device)
        size = group_rows(config.heads, config.kv_heads)
        self.sequences = min(limits.sequences, limits.rows)
        self.inputs = InputBuffers(
            limits.rows, self.sequences, kv_cache.longest // BLOCK, size, self.device
        )
        self.copies = self.inputs.copies
        self.forward_pass = Forward(config, weights, kv_cache, self.inputs, limits, share)
        self.logits = self.forward_pass.logits
        """float32 [rows, padded columns] on the device: of the last head that ran."""
        self.graphs = graphs_for(self.device)
        self._host_logits: Tensor | None = None
        self.copies.synchronize()

    def close(self) -> None:
        """End nothing: memory goes with the object."""

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """Return logits [len(rows.outputs), config.outputs]; a view, valid until the next call."""
        shape = self.launch(rows)
        if not shape.outputs:
            return np.empty((0, self.config.outputs), np.float32)
        self.head(shape)
        logits = self.fetch_logits(0, len(rows.outputs))
        self.copies.wait()
        return logits[:, : self.config.outputs]

    def launch(self, rows: Rows, settings: NDArray[np.void] | None = None) -> InputShape:
        """Launch queued moves, then the body of a pass; returns before any of it has run.

        `settings`: those of sampling of the rows with outputs, staged for the runner. Raises
        `ValueError` for too many rows.
        """
        if not 0 < rows.count <= self.row_capacity:
            raise ValueError(f"{rows.count} rows: a pass takes 1 to {self.row_capacity}")
        if rows.by_library:
            self._check_chunk(rows)
        shape = self.inputs.stage(rows, self._moves(), settings)
        forward, graphs = self.forward_pass, self.graphs
        with self.copies.computing():
            if shape.moves:
                graphs.run(("move", shape.moves), lambda: forward.move(shape.moves))
            key = ("library" if rows.by_library else "body", shape.rows, shape.groups)
            graphs.run(key, lambda: forward.body(shape.rows, shape.groups, rows.by_library))
        return shape

    def head(self, shape: InputShape) -> None:
        """Launch logits of the outputs of the last pass; does not wait for them."""
        if shape.outputs:
            with self.copies.computing():
                key = ("head", shape.outputs)
                self.graphs.run(key, lambda: self.forward_pass.head(shape.outputs))

    def fetch_logits(self, begin: int, end: int) -> NDArray[np.float32]:
        """Start copying logits of outputs begin … end - 1 to the host; they are there after
        `copies.wait`, until the next pass. [end - begin, padded columns]"""
        if self._host_logits is None:
            self._host_logits = self.copies.host(*self.logits.shape, dtype=torch.float32)
        host = self._host_logits[begin:end]
        if end > begin:
            self.copies.fetch(self.logits[begin:end], host)
        found: NDArray[np.float32] = host.numpy()
        return found

    def _check_chunk(self, rows: Rows) -> None:
        first, last = (int(rows.positions[at]) for at in (0, -1))
        if first // CHUNK != last // CHUNK or self.row_capacity < CHUNK:
            raise ValueError(
                f"positions {first} to {last} in passes of up to {self.row_capacity} rows: the "
                f"library takes a chunk of {CHUNK}, from a multiple of {CHUNK} on"
            )

    def _moves(self) -> tuple[Int32, Int32]:
        """Return the queued moves; more than one launch holds are copied at once, which is rare."""
        moves = self.kv_cache.queued()
        if len(moves[0]) <= MAX_MOVES:
            return moves
        with self.copies.computing():
            self.kv_cache.move_many(*moves)
        return NO_MOVES


def lasting_errors(run: Callable[P, T]) -> Callable[P, T]:
    """Make `run` raise `DeviceLost` for an error that CUDA would repeat at every further call.

    Such errors come with the first call after the kernel that failed, whatever it does. Too little
    memory is not such an error: it ends a step.
    """

    @functools.wraps(run)
    def raising(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return run(*args, **kwargs)
        except torch.AcceleratorError as error:
            raise DeviceLost(f"the GPU failed: {error}") from error
        except RuntimeError as error:
            if not str(error).startswith(LAUNCH_FAILED) or "out of memory" in str(error):
                raise
            raise DeviceLost(f"the GPU failed: {error}") from error

    return raising
