"""Loading on GPUs: a model on one device or over the devices of its ranks, with its step costs.

Leaves the choice of device to `host.device`, weights to `gpu.shard`, ranks to `gpu_rank_group`.
"""

import logging
from collections.abc import Callable

from outrider.contract.settings import MIN_CONTEXT, Dtype, WorkerSettings
from outrider.kernels.gpu.attention_inputs import LINES
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.costs.step_timing import measured_costs
from outrider.worker.errors import ModelError
from outrider.worker.gpu.device_group import DeviceGroup, join_device_group
from outrider.worker.gpu.lending import Lending
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.shard import (
    INTERPRETER,
    SMALLER,
    Terms,
    block_bytes,
    enough_memory,
    model_of,
    precision_of,
)
from outrider.worker.gpu.timing import INTERPRETED, GreedyPasses, machine
from outrider.worker.kv.block_pool import BLOCK, blocks_for
from outrider.worker.launch.gpu_rank_group import LeadingRanks, lead_on_device
from outrider.worker.launch.loaded import (
    DEFAULT_KV_BYTES,
    ROW_CAPACITY,
    LoadedModel,
    blocks_asked_for,
    start_rank_group,
)
from outrider.worker.launch.prepare import context_of
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.placement import LEADER

logger = logging.getLogger(__name__)

FAMILIES = tuple(family for family in Family if family is not Family.GEMMA3)
HEAD_DIMS = (32, 64, 128, 256)
"""Held by the tiles of both the projection and the attention."""
KV_SHARE, KV_SHARE_BESIDE_A_DRAFT = 0.8, 0.4
"""Shares that KV takes of the memory that is free beside the weights, if `kv_bytes` is left out;
the rest is for the buffers of passes, for graphs, and for a colocated draft."""


def load_on_device(
    settings: WorkerSettings,
    dtype: Dtype,
    prepared: PreparedModel,
    beyond: int,
    device: str,
    lending: Lending | None = None,
) -> LoadedModel:
    """Load and measure; `beyond` slots of each sequence lie behind the longest context.

    `device` is the first rank's; with several ranks, starts the others and leads them. `lending`:
    None, and of several ranks, its memory is its own. Raises `ModelError` for a model or settings
    that the GPU runner does not hold, and `GroupLost`.
    """
    shard = Shard(prepared.config(), LEADER, settings.tensor_parallel)
    check(shard.config)
    context = context_of(settings, shard.whole.context)
    terms = Terms(dtype, context + beyond, ROW_CAPACITY, settings.max_running, settings.all_reduce)
    each = block_bytes(shard.config, precision_of(dtype, device, shard).activations)
    blocks = blocks_of(settings, context, beyond, each, device)
    model: GpuModel | LeadingGpuModel
    with enough_memory(device):
        if shard.degree > 1:
            model = lead(settings, prepared, terms, blocks, device)
        else:
            cached, group = settings.prefix_cache, DeviceGroup(device)
            model = model_of(
                prepared, shard, terms, blocks, group, prefix_cache=cached, lending=lending
            )
        model.kv_cache.warm_up()
        interpreted = device == INTERPRETER
        costs = INTERPRETED if interpreted else costs_of(model, settings, prepared, device)
    kv_cache, kv_bytes = model.kv_cache, model.kv_cache.blocks * each * shard.degree
    logger.info(
        "%s: %s weights on %s, KV of %d tokens in %.1f GB, %.2f ms for one row, %.2f ms for eight",
        *(prepared.name, model.path, device, kv_cache.blocks * BLOCK, kv_bytes / 1e9),
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
    """Start the other ranks of a model and lead them; raises `ModelError` and `GroupLost`."""
    rank_group = start_rank_group(settings, prepared, device)
    group = rank_group.meet()
    with rank_group.watchdog:
        devices = join_device_group(rank_group.store, LEADER, group.size, device, rank_group.host)
    ranks = LeadingRanks(group, devices, rank_group.watchdog, rank_group.followers.close)
    return lead_on_device(prepared, terms, blocks, ranks, prefix_cache=settings.prefix_cache)


def check(config: ModelConfig) -> None:
    """Raise `ModelError` for a family whose layers, or for heads that GPU kernels do not hold;
    `config` of one rank's share."""
    if config.family not in FAMILIES:
        raise ModelError(
            f"model_type: {config.family} is not allowed on a GPU; allowed: {', '.join(FAMILIES)}"
        )
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
    settings: WorkerSettings, context: int, beyond: int, each: int, device: str
) -> Callable[[int], int]:
    """Return the function from bytes that weights leave free on each device to blocks of KV.

    As many as the settings ask for, or as fit; `each` bytes a rank. Both raise `ModelError`.
    """
    ranks, longest = settings.tensor_parallel, context + beyond
    one = blocks_for(longest)
    if settings.kv_bytes is not None:
        asked = blocks_asked_for(settings.kv_bytes, longest, ranks * each)
        return lambda free: asked
    if device == INTERPRETER:
        most = min(settings.max_running * one, DEFAULT_KV_BYTES // (ranks * each))
        return lambda free: max(one, most)
    share = KV_SHARE if settings.colocated is None else KV_SHARE_BESIDE_A_DRAFT

    def fitting(free: int) -> int:
        blocks = int(free * share) // each
        logger.info("%.0f %% of %.1f GB free on a device is for KV", 100 * share, free / 1e9)
        if blocks < one:
            most = blocks * BLOCK - beyond
            fits = f"at most {most}" if most >= MIN_CONTEXT else f"none, but {SMALLER}"
            raise ModelError(
                f"settings.max_context: {context} (engine.maxContext of a service) is not allowed "
                f"here, one sequence needs {one * each} bytes of KV on each device, and beside the "
                f"weights {int(free * share)} are for it; allowed: {fits}"
            )
        return blocks

    return fitting


def costs_of(
    model: GpuModel | LeadingGpuModel,
    settings: WorkerSettings,
    prepared: PreparedModel,
    device: str,
) -> StepCosts:
    """Measure as a target's steps run; capture the graphs of the buckets on the way."""
    return measured_costs(
        GreedyPasses(model),
        settings.threads,
        prepared.cache,
        settings.max_running,
        ranks=settings.tensor_parallel,
        machine=machine(device),
    )
