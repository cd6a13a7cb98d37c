"""Loading on the CPU: a model in host memory, whole or cut over ranks, with its step costs.

Leaves the ranks to `rank_group`.
"""

import logging

from outrider.contract.settings import Dtype, Role, WorkerSettings
from outrider.worker.checkpoints.kept_weights import KeptWeights
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.numeric_path import PathChoice, admitted, resolve
from outrider.worker.costs.step_timing import measured_costs
from outrider.worker.kv.block_pool import BLOCK, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.loaded import (
    DEFAULT_KV_BYTES,
    ROW_CAPACITY,
    LoadedModel,
    blocks_asked_for,
    start_rank_group,
)
from outrider.worker.launch.prepare import context_of
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.placement import LEADER
from outrider.worker.parallel.step_message import InitMessage

logger = logging.getLogger(__name__)


def load_on_cpu(
    settings: WorkerSettings,
    role: Role,
    dtype: Dtype,
    prepared: PreparedModel,
    beyond: int,
    lendable: int = 0,
) -> LoadedModel:
    """Load and measure; `beyond` slots of each sequence lie behind the longest context.

    `lendable`: bytes by which its KV may grow later, if all its sequences can use them; not with
    several ranks. With several ranks, starts the others and leads them. Raises `ModelError`, and
    `GroupLost` when a rank is gone before all are ready.
    """
    config, ranks = prepared.config(), settings.tensor_parallel
    context = context_of(settings, config.context)
    longest = context + beyond
    blocks = blocks_of(settings, config, longest)
    rank_group = start_rank_group(settings, prepared) if ranks > 1 else None
    share = Shard(config, LEADER, ranks)
    usable = settings.max_running * blocks_for(longest) if ranks == 1 else 0
    most = min(blocks + lendable // block_bytes(config, ranks), usable)
    cached = settings.prefix_cache
    kv_cache = HostKVCache(share.config.kv_shape, blocks, longest, most=most, prefix_cache=cached)
    own, choice = llama_of(settings, role, dtype, prepared, share, kv_cache)
    init = InitMessage(own.path, blocks, longest, ROW_CAPACITY)
    model = rank_group.lead(own, init) if rank_group else own
    kv_cache.warm_up()
    costs = measured_costs(
        model, settings.threads, prepared.cache, settings.max_running, ranks=ranks
    )
    logger.info(
        "%s: %s weights, %.2f ms for one row, %.2f ms for eight",
        *(prepared.name, choice, 1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
    )
    return LoadedModel(
        model,
        kv_cache,
        costs,
        context,
        blocks * block_bytes(config, ranks),
        path_seconds=choice.seconds,
    )


def llama_of(
    settings: WorkerSettings,
    role: Role,
    dtype: Dtype,
    prepared: PreparedModel,
    share: Shard,
    kv_cache: HostKVCache,
) -> tuple[Llama, PathChoice]:
    """Map or pack a model's weights on the numeric path that its role takes; return both.

    Weights of a draft inside its target can leave their memory. Raises `ModelError`.
    """
    weights = CheckpointTensors(prepared, share.cut)
    if dtype is Dtype.AUTO and weights.path is not None:
        dtype = Dtype(weights.path)  # others would round the weights further
    choice = resolve(dtype, role, share.config, weights, settings.threads, prepared.cache)
    inside = role is Role.DRAFT and settings.colocated is not None
    pack = KeptWeights(prepared, share).packed
    host_folder = prepared.cache if inside else None
    options = PassOptions(settings.threads, host_folder=host_folder, pack=pack)
    model = Llama(share.config, weights, choice.path, kv_cache, ROW_CAPACITY, options)
    if dtype is not Dtype.AUTO:  # AUTO takes only what was probed
        admitted({choice.path: model})
    return model, choice


def block_bytes(config: ModelConfig, ranks: int) -> int:
    """Return the bytes of one block of KV in all ranks; copies and padding count."""
    return BLOCK * ranks * Shard(config, LEADER, ranks).config.kv_bytes_per_token


def blocks_of(settings: WorkerSettings, config: ModelConfig, longest: int) -> int:
    """Return the blocks of KV by the settings; raises `ModelError` if too few for a sequence."""
    one, each = blocks_for(longest), block_bytes(config, settings.tensor_parallel)
    if settings.kv_bytes is not None:
        return blocks_asked_for(settings.kv_bytes, longest, each)
    return max(one, min(settings.max_running * one, DEFAULT_KV_BYTES // each))
