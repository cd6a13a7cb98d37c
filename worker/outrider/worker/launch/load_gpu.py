"""Loads a model onto a device, or over the devices of its ranks, and measures what steps cost.

Leaves which device, and which numbers it computes with, to `device`; weights to `shares`; what runs
on it to the schedulers.
"""

import logging
from collections.abc import Callable

from outrider.contract.settings import Dtype, WorkerSettings
from outrider.kernels.gpu.attention_inputs import LINES
from outrider.worker.errors import ModelError
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.shard import INTERPRETER, PRECISIONS, Terms, block_bytes, model_of
from outrider.worker.gpu.timing import INTERPRETED, GreedyPasses, machine
from outrider.worker.kv.block_table import BLOCK, blocks_for
from outrider.worker.launch.gpu_rank_group import gather_between, lead_on_device
from outrider.worker.launch.loaded import (
    DEFAULT_KV_BYTES,
    ROW_CAPACITY,
    LoadedModel,
    blocks_asked_for,
    gather,
)
from outrider.worker.launch.prepare import context_of
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard
from outrider.worker.model.step_costs import StepCosts
from outrider.worker.model.step_timing import measured_costs
from outrider.worker.parallel.init_message import LEADER

logger = logging.getLogger(__name__)

HEAD_DIMS = (32, 64, 128, 256)
"""What both the projection's and the attention's tiles hold."""
KV_SHARE, KV_SHARE_BESIDE_A_DRAFT = 0.8, 0.4
"""Of the memory that is free beside the weights, if `kv_bytes` is left out; the rest is for the
buffers of passes, for graphs, and for a colocated draft."""


def load_on_device(
    settings: WorkerSettings, dtype: Dtype, prepared: PreparedModel, beyond: int, device: str
) -> LoadedModel:
    """Loads and measures; `beyond` slots of each sequence lie behind the longest context.

    `device` is the first rank's; with several ranks, starts the others and leads them. Raises
    `ModelError` for a model or settings that the GPU runner does not hold, and `GroupLost`.
    """
    shard = Shard(prepared.config(), LEADER, settings.tensor_parallel)
    check(shard.config)
    if dtype is Dtype.AUTO:  # bf16 arithmetic is wrong in the interpreter
        dtype = Dtype.FP32 if device == INTERPRETER else Dtype.BF16
    context = context_of(settings, shard.whole.context)
    terms = Terms(dtype, context + beyond, ROW_CAPACITY, settings.max_running)
    each = block_bytes(shard.config, PRECISIONS[dtype].activations)
    blocks = blocks_of(settings, terms.longest, each, device)
    model: GpuModel | LeadingGpuModel
    if shard.degree > 1:
        model = lead(settings, prepared, terms, blocks, device)
    else:
        cached = settings.prefix_cache
        model = model_of(prepared, shard, terms, blocks, device, prefix_cache=cached)
    kv_cache, kv_bytes = model.kv_cache, model.kv_cache.blocks * each * shard.degree
    kv_cache.warm_up()
    costs = INTERPRETED if device == INTERPRETER else costs_of(model, settings, prepared, device)
    logger.info(
        "%s: %s weights on %s, KV of %d tokens in %.1f GB, %.2f ms for one row, %.2f ms for eight",
        *(prepared.name, dtype, device, kv_cache.blocks * BLOCK, kv_bytes / 1e9),
        *(1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
    )
    return LoadedModel(model, kv_cache, costs, context, kv_bytes, on_gpu=True)


def lead(
    settings: WorkerSettings,
    prepared: PreparedModel,
    terms: Terms,
    blocks: Callable[[int], int],
    device: str,
) -> LeadingGpuModel:
    """The ranks of a model, brought together; raises `ModelError` and `GroupLost`."""
    gathering = gather(settings, prepared, device)
    group = gathering.meet()
    with gathering.deadline:
        between = gather_between(gathering.store, LEADER, group.size, device, gathering.host)
    return lead_on_device(
        *(prepared, terms, blocks, group, between, device, gathering.deadline),
        prefix_cache=settings.prefix_cache,
        ended=gathering.followers.close,
    )


def check(config: ModelConfig) -> None:
    """Raises `ModelError` for what the GPU runner does not hold; `config` of one rank's share."""
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


def blocks_of(
    settings: WorkerSettings, longest: int, each: int, device: str
) -> Callable[[int], int]:
    """Blocks of KV, of `each` bytes a rank, by the bytes that weights leave free on each device.

    Those that the settings ask for, or that there is memory for. Both raise `ModelError`.
    """
    ranks, one = settings.tensor_parallel, blocks_for(longest)
    if settings.kv_bytes is not None:
        asked = blocks_asked_for(settings.kv_bytes, longest, ranks * each)
        return lambda free: asked
    if device == INTERPRETER:
        most = min(settings.max_running * one, DEFAULT_KV_BYTES // (ranks * each))
        return lambda free: max(one, most)
    share = KV_SHARE if settings.colocated is None else KV_SHARE_BESIDE_A_DRAFT

    def held(free: int) -> int:
        blocks = int(free * share) // each
        logger.info("%.0f %% of %.1f GB free on a device is for KV", 100 * share, free / 1e9)
        if blocks < one:
            raise ModelError(
                f"settings.max_context: one sequence of {longest} tokens and nodes needs "
                f"{one * each} bytes of KV, and {int(free * share)} are free beside the weights"
            )
        return blocks

    return held


def costs_of(
    model: GpuModel | LeadingGpuModel,
    settings: WorkerSettings,
    prepared: PreparedModel,
    device: str,
) -> StepCosts:
    """Measured as a target's steps run; graphs of the buckets are captured on the way."""
    return measured_costs(
        GreedyPasses(model),
        settings.threads,
        prepared.cache,
        settings.max_running,
        ranks=settings.tensor_parallel,
        machine=machine(device),
    )
