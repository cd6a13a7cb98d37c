"""Tiny models on a device, beside the same ones on the CPU path.

Shapes are those that the GPU kernels hold: head_dim 32. Leaves what is asserted to the tests.
"""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import torch

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.gpu.weights import WeightFormat
from outrider.worker.checkpoints.load import load, stored_tensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.gpu.cuda_graphs import CudaGraphs, Work
from outrider.worker.gpu.forward import PassLimits
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.weights import DeviceWeights, Loading, Precision
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama
from outrider.worker.model.matrix import AsStored
from tests.kv_arrays import keys_by_slot
from tests.tiny_models import write_tiny

BLOCKS, LONGEST, ROWS = 6, 192, 24
SPLITS = 3
"""Splits of a context: the interpreter runs programs one by one, also those that have nothing to
do."""
SMALL: dict[str, Any] = {"vocab": 300, "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama untied, odd sizes": (
        "llama",
        {
            "tie_word_embeddings": False,
            "hidden": 72,
            "heads": 3,
            "kv_heads": 1,
            "intermediate_size": 100,
        },
    ),
    "mistral window": ("mistral", {"sliding_window": 24}),
    "qwen2 bias": ("qwen2", {"tie_word_embeddings": False}),
    "qwen2 window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3 head norms": ("qwen3", {}),
    "phi3": ("phi3", {"sliding_window": 24}),
}


class FirstWork(CudaGraphs):
    """Does again what came first with a key, as a captured graph would, whatever comes later."""

    def __init__(self) -> None:
        self.works: dict[Hashable, Work] = {}

    def run(self, key: Hashable, work: Work) -> None:
        self.works.setdefault(key, work)()


def write(directory: Path, family: str = "llama", **changes: Any) -> Path:
    """A tiny checkpoint of one of `FAMILIES`, or of a `model_type`; returns `directory`."""
    kind, fields = FAMILIES.get(family, (family, {}))
    return write_tiny(directory, kind, **(SMALL | {"head_dim": 32} | fields | changes))


def loaded(
    config: ModelConfig,
    tensors: Mapping[str, AsStored],
    precision: Precision,
    positions: int,
    device: str,
) -> DeviceWeights:
    """Weights of arrays by their Hugging Face names."""
    loading = Loading(config, precision, positions, device)
    for name, tensor in tensors.items():
        loading.take(name, tensor)
    return loading.finished()


def on_device(
    folder: Path,
    device: str,
    dtype: torch.dtype = torch.float32,
    rows: int = ROWS,
    blocks: int = BLOCKS,
    longest: int = LONGEST,
    matrices: WeightFormat | None = WeightFormat.PLAIN,
) -> GpuModel:
    """A checkpoint's model and its pool."""
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64)
    config = prepared.config()
    tensors = {name: tensor.read() for name, tensor in stored_tensors(prepared).items()}
    weights = loaded(config, tensors, Precision(dtype, matrices), longest, device)
    kv_cache = DeviceKVCache(config, blocks, longest, dtype, device)
    limits = PassLimits(rows, BLOCKS, SPLITS)
    model = GpuModel(config, weights, weights.formats, kv_cache, limits)
    if not model.graphs.captures:
        model.graphs = FirstWork()
    return model


def on_cpu(folder: Path, rows: int = ROWS) -> Llama:
    """The same on the CPU's fp32 path."""
    config, tensors = load(PreparedModel("tiny", folder, folder, folder, "0" * 64))
    return Llama(
        config, tensors, NumericPath.FP32, HostKVCache(config.kv_shape, BLOCKS, LONGEST), rows
    )


def give_kv(cpu: Llama, gpu: GpuModel) -> None:
    """Copies all KV to the device: prompts cost the interpreter seconds."""
    gpu.kv_cache.k.copy_(torch.from_numpy(keys_by_slot(cpu.kv_cache.k_t)).transpose(2, 3))
    gpu.kv_cache.v.copy_(torch.from_numpy(cpu.kv_cache.v))
    gpu.copies.synchronize()
