"""Loads a model onto a device: weights tensor by tensor, KV in what memory is left, step costs.

Leaves which device, and which numbers it computes with, to `device`; what runs on it to the
schedulers.
"""

import logging

import torch

from outrider.contract.settings import Dtype, WorkerSettings
from outrider.kernels.gpu.contexts import LINES
from outrider.kernels.gpu.weights import Format
from outrider.worker.costs import StepCosts
from outrider.worker.errors import ModelError
from outrider.worker.gpu.measuring import INTERPRETED, GreedyPasses, machine
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.pool import DevicePool
from outrider.worker.gpu.weights import DeviceWeights, Loading, Precision
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.load import load_part
from outrider.worker.model.loaded import DEFAULT_KV_BYTES, MAX_ROWS, LoadedModel, blocks_asked_for
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.preparation import context_of
from outrider.worker.region import BLOCK, blocks_for
from outrider.worker.step_timing import measured_costs

logger = logging.getLogger(__name__)

PRECISIONS = {
    Dtype.FP32: Precision(torch.float32),
    Dtype.BF16: Precision(torch.bfloat16),
    Dtype.FP8: Precision(torch.bfloat16, Format.FP8),
}
HEAD_DIMS = (32, 64, 128, 256)
"""What both the projection's and the attention's tiles hold."""
KV_SHARE, KV_SHARE_BESIDE_A_DRAFT = 0.8, 0.4
"""Of the memory that is free beside the weights, if `kv_bytes` is left out; the rest is for the
buffers of passes, for graphs, and for a colocated draft."""
INTERPRETED_SPLITS = 3
"""Of a context, in the interpreter: it runs one program after the other."""


def load_on_device(
    settings: WorkerSettings, dtype: Dtype, prepared: PreparedModel, beyond: int, device: str
) -> LoadedModel:
    """Loads and measures; `beyond` slots of each sequence lie behind the longest context.

    Raises `ModelError` for a model or settings that the GPU runner does not hold.
    """
    config, interpreted = prepared.config(), device == "cpu"
    check(config, settings)
    if dtype is Dtype.AUTO:  # bf16 arithmetic is wrong in the interpreter
        dtype = Dtype.FP32 if interpreted else Dtype.BF16
    context = context_of(settings, config.context)
    longest = context + beyond
    weights = load_weights(prepared, PRECISIONS[dtype], blocks_for(longest) * BLOCK, device)
    kind = weights.embedding.dtype
    each = block_bytes(config, kind)
    blocks = blocks_of(settings, longest, each, device)
    pool = DevicePool(config, blocks, longest, kind, device, prefix_cache=settings.prefix_cache)
    splits = INTERPRETED_SPLITS if interpreted else None
    sequences = settings.max_running
    model = GpuModel(config, weights, str(dtype), pool, MAX_ROWS, sequences, splits=splits)
    pool.rehearse()
    costs = INTERPRETED if interpreted else costs_of(model, settings, prepared)
    logger.info(
        "%s: %s weights on %s, KV of %d tokens in %.1f GB, %.2f ms for one row, %.2f ms for eight",
        *(prepared.name, dtype, device, blocks * BLOCK, blocks * each / 1e9),
        *(1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
    )
    return LoadedModel(model, pool, costs, context, blocks * each, on_gpu=True)


def check(config: ModelConfig, settings: WorkerSettings) -> None:
    """Raises `ModelError` for what the GPU runner does not hold."""
    if config.head_dim not in HEAD_DIMS:
        raise ModelError(
            f"head_dim: {config.head_dim} is not allowed on a GPU; allowed: "
            f"{', '.join(map(str, HEAD_DIMS))}"
        )
    if config.heads // config.kv_heads > LINES:
        raise ModelError(
            f"heads: {config.heads} with {config.kv_heads} key heads is not allowed on a GPU; "
            f"allowed: at most {LINES} to each"
        )
    if settings.tensor_parallel > 1:
        raise ModelError(
            f"settings.tensor_parallel: {settings.tensor_parallel} is not allowed on a GPU; "
            "allowed: 1, or settings.device: cpu"
        )


def load_weights(
    prepared: PreparedModel, precision: Precision, positions: int, device: str
) -> DeviceWeights:
    """One tensor after the other; raises `ModelError`."""
    loading = Loading(prepared.config(), precision, positions, device)
    load_part(prepared, loading.take)
    return loading.finished()


def block_bytes(config: ModelConfig, kind: torch.dtype) -> int:
    """Of one block of keys and values."""
    return BLOCK * 2 * config.layers * config.kv_heads * config.head_dim * kind.itemsize


def blocks_of(settings: WorkerSettings, longest: int, each: int, device: str) -> int:
    """Blocks of KV, which the settings ask for or that there is memory for; raises `ModelError`."""
    if settings.kv_bytes is not None:
        return blocks_asked_for(settings.kv_bytes, longest, each)
    one = blocks_for(longest)
    if device == "cpu":
        return max(one, min(settings.max_running * one, DEFAULT_KV_BYTES // each))
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    share = KV_SHARE if settings.colocated is None else KV_SHARE_BESIDE_A_DRAFT
    blocks = int(free * share) // each
    logger.info("%.0f %% of %.1f GB free on %s is for KV", 100 * share, free / 1e9, device)
    if blocks < one:
        raise ModelError(
            f"settings.max_context: one sequence of {longest} tokens and nodes needs "
            f"{one * each} bytes of KV, and {int(free * share)} are free beside the weights"
        )
    return blocks


def costs_of(model: GpuModel, settings: WorkerSettings, prepared: PreparedModel) -> StepCosts:
    """Measured as a target's steps run; graphs of the buckets are captured on the way."""
    return measured_costs(
        GreedyPasses(model),
        settings.threads,
        prepared.cache,
        settings.max_running,
        machine=machine(model.device),
    )
