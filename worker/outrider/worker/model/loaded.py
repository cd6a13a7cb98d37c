"""A model in memory, measured: weights on their numeric path, KV pool, step costs.

Leaves what runs on it to the schedulers.
"""

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outrider.contract.settings import MOST_ROWS, Dtype, WorkerSettings
from outrider.worker.costs import StepCosts
from outrider.worker.device import check_dtype, torch_device
from outrider.worker.errors import ModelError
from outrider.worker.kv_pool import KVPool
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load_part
from outrider.worker.model.numeric import resolve
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard
from outrider.worker.moving_pool import MovingPool
from outrider.worker.preparation import context_of
from outrider.worker.ranks.leading import Leader
from outrider.worker.ranks.place import Place
from outrider.worker.ranks.setup import LEADER, Setup
from outrider.worker.region import BLOCK, blocks_for
from outrider.worker.runner import Model
from outrider.worker.step_timing import Measurable, measured_costs

if TYPE_CHECKING:
    from outrider.worker.ranks.gathering import Gathering

logger = logging.getLogger(__name__)

MAX_ROWS = 2 * MOST_ROWS
"""Rows of one pass: as many for roots and nodes as for chunks of prompts."""
DEFAULT_KV_BYTES = 2 << 30


class EngineModel(Model, Measurable, Protocol):
    """What schedulers and runners are given, on whichever device and however many ranks."""

    def close(self) -> None:
        """Ends what runs beside the engine."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything that an engine runs one model with."""

    model: EngineModel
    pool: MovingPool
    costs: StepCosts
    context: int
    """Most tokens of one sequence."""
    kv_bytes: int
    """Of keys and values, in all ranks."""
    on_gpu: bool = False

    @property
    def path(self) -> str:
        """How its weights are held."""
        return self.model.path

    def rehearsed(self) -> None:
        """Nothing is left to compile: a pass that takes far longer than was measured is stuck."""
        if isinstance(self.model, Leader):
            self.model.deadline.measured(self.costs.seconds(MAX_ROWS, self.context))

    @classmethod
    def load(
        cls,
        settings: WorkerSettings,
        dtype: Dtype,
        prepared: PreparedModel,
        beyond: int,
    ) -> "LoadedModel":
        """Loads and measures; `beyond` slots of each sequence lie behind the longest context.

        Takes the device that the settings ask for; loads torch for a GPU alone. With several
        ranks, starts the others and leads them. Raises `ModelError`, and `GroupLost` when a rank
        is gone before all are ready.
        """
        device = torch_device(settings.device)
        check_dtype(dtype, gpu=device is not None)
        config, ranks = prepared.config(), settings.tensor_parallel
        if device is not None:
            from outrider.worker.gpu.load import load_on_device

            return load_on_device(settings, dtype, prepared, beyond, device)
        context = context_of(settings, config.context)
        longest = context + beyond
        blocks = blocks_of(settings, config, longest)
        gathering = gather(settings, prepared) if ranks > 1 else None
        share = Shard(config, LEADER, ranks)
        weights = load_part(prepared, share.cut)
        path = resolve(dtype, share.config, weights, settings.threads, prepared.cache)
        pool = KVPool(share.config, blocks, longest, prefix_cache=settings.prefix_cache)
        own = Llama(share.config, weights, path, pool, MAX_ROWS, settings.threads)
        model = gathering.lead(own, Setup(path, blocks, longest, MAX_ROWS)) if gathering else own
        pool.rehearse()
        costs = measured_costs(
            model, settings.threads, prepared.cache, settings.max_running, ranks=ranks
        )
        logger.info(
            "%s: %s weights, %.2f ms for one row, %.2f ms for eight",
            *(prepared.name, path, 1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
        )
        return cls(model, pool, costs, context, blocks * block_bytes(config, ranks))


def gather(
    settings: WorkerSettings, prepared: PreparedModel, device: str | None = None
) -> "Gathering":
    """The ranks of a model that this process leads; raises `ModelError` and `GroupLost`.

    `device`: this one's, if each has one. Loads torch, which only a group needs and which takes
    seconds.
    """
    from outrider.worker.ranks.gathering import Gathering

    return Gathering(settings, prepared, Place.of(os.environ), MAX_ROWS, device)


def block_bytes(config: ModelConfig, ranks: int) -> int:
    """Of one block of keys and values of a whole model, in all ranks; copies and padding count."""
    return BLOCK * ranks * Shard(config, LEADER, ranks).config.kv_bytes_per_token


def blocks_of(settings: WorkerSettings, config: ModelConfig, longest: int) -> int:
    """Blocks of KV that the settings ask for; raises `ModelError` for less than one sequence's."""
    one, each = blocks_for(longest), block_bytes(config, settings.tensor_parallel)
    if settings.kv_bytes is not None:
        return blocks_asked_for(settings.kv_bytes, longest, each)
    return max(one, min(settings.max_running * one, DEFAULT_KV_BYTES // each))


def blocks_asked_for(kv_bytes: int, longest: int, each: int) -> int:
    """Blocks of `each` bytes; raises `ModelError` for less than one sequence's."""
    one = blocks_for(longest)
    if kv_bytes < one * each:
        raise ModelError(
            f"settings.kv_bytes: {kv_bytes} is not allowed; one sequence of {longest} "
            f"tokens and nodes needs {one * each} bytes"
        )
    return kv_bytes // each
