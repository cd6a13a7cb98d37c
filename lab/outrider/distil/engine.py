"""The worker's engine without its scheduler: passes that give logits and features, on any device.

What a distillation wants of a pass is not only the next token but the last hidden state of rows.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import Dtype
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache, KVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.rows import Rows

ROWS = 256
"""Most of one pass."""


class Results(NamedTuple):
    """What one pass leaves of its rows with outputs."""

    logits: NDArray[np.float32]
    """[outputs, config.outputs]; a view, valid until the next pass."""
    features: NDArray[np.float32]
    """[outputs, hidden] after the final norm; a view, too."""


class Engine(Protocol):
    """One model with room for some sequences."""

    config: ModelConfig
    path: str
    """Numeric path, in words."""
    kv_cache: KVCache
    row_capacity: int

    def run(self, rows: Rows) -> Results:
        """Run one pass."""

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """Run one pass for its logits."""

    def close(self) -> None:
        """Give back memory and threads."""


class Room(NamedTuple):
    """How many sequences, and how long."""

    sequences: int
    longest: int


class HostEngine:
    """On the CPU."""

    def __init__(
        self, prepared: PreparedModel, path: NumericPath, room: Room, threads: int = 1
    ) -> None:
        self.config, weights = load(prepared)
        self.path = str(path)
        blocks = room.sequences * blocks_for(room.longest)
        kv_cache = HostKVCache(self.config.kv_shape, blocks, room.longest, prefix_cache=False)
        self.kv_cache: KVCache = kv_cache
        self.row_capacity = ROWS
        self._model = Llama(self.config, weights, path, kv_cache, ROWS, PassOptions(threads))
        self.close = self._model.close
        self.forward = self._model.forward

    def run(self, rows: Rows) -> Results:
        """Run one pass."""
        logits = self._model.forward(rows)
        return Results(logits, self._model.features(len(logits)))


class DeviceEngine:
    """On a GPU, or on the CPU where its kernels are interpreted."""

    def __init__(self, prepared: PreparedModel, dtype: Dtype, room: Room, device: str) -> None:
        from outrider.worker.gpu.device_group import DeviceGroup
        from outrider.worker.gpu.shard import Terms, model_of
        from outrider.worker.model.sharding import Shard

        self.config = prepared.config()
        blocks = room.sequences * blocks_for(room.longest)
        self.row_capacity = max(ROWS, room.sequences)
        terms = Terms(dtype, room.longest, self.row_capacity, self.row_capacity)
        shard, group = Shard(self.config, 0, 1), DeviceGroup(device)
        self._model = model_of(prepared, shard, terms, lambda free: blocks, group)
        self.path = self._model.path
        self.kv_cache: KVCache = self._model.kv_cache
        self.close = self._model.close
        self.forward = self._model.forward

    def run(self, rows: Rows) -> Results:
        """Run one pass."""
        logits = self._model.forward(rows)
        features = self._model.forward_pass.normed[: len(rows.outputs)]
        return Results(logits, features.float().cpu().numpy())


def engine_of(
    prepared: PreparedModel, dtype: Dtype, room: Room, device: str | None, threads: int
) -> Engine:
    """Load a model onto a device, None for the CPU's own path; raises `ModelError`."""
    path = path_of(dtype, device)
    if device is not None:
        return DeviceEngine(prepared, path, room, device)
    if path is Dtype.FP8:
        raise ModelError("dtype: fp8 is not allowed on a CPU; allowed: fp32, bf16, int8, int4")
    return HostEngine(prepared, NumericPath(path), room, threads)


def path_of(dtype: Dtype, device: str | None) -> Dtype:
    """Return the numeric path of a device; None is the CPU's own.

    AUTO is int8 on a CPU, where batches of many rows run fastest, and bf16 on a GPU.
    """
    if dtype is not Dtype.AUTO:
        return dtype
    if device is None:
        return Dtype.INT8
    return Dtype.FP32 if device == "cpu" else Dtype.BF16
