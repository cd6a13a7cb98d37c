"""A model in memory, measured: weights on their numeric path, KV pool, step costs.

Leaves what runs on it to the schedulers.
"""

import logging
from dataclasses import dataclass
from typing import Self

from outrider.contract.settings import MOST_ROWS, Dtype, WorkerSettings
from outrider.kernels.linear import Path
from outrider.worker.costs import StepCosts
from outrider.worker.errors import ModelError
from outrider.worker.kv_pool import KVPool
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load
from outrider.worker.model.numeric import resolve
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.preparation import context_of
from outrider.worker.region import BLOCK, blocks_for
from outrider.worker.step_timing import measured_costs

logger = logging.getLogger(__name__)

MAX_ROWS = 2 * MOST_ROWS
"""Rows of one pass: as many for roots and nodes as for chunks of prompts."""
DEFAULT_KV_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything that an engine runs one model with."""

    model: Llama
    pool: KVPool
    path: Path
    costs: StepCosts
    context: int
    """Most tokens of one sequence."""

    @property
    def kv_bytes(self) -> int:
        """Of keys and values."""
        return self.pool.blocks * BLOCK * self.model.config.kv_bytes_per_token

    @classmethod
    def load(
        cls,
        settings: WorkerSettings,
        dtype: Dtype,
        prepared: PreparedModel,
        beyond: int,
    ) -> Self:
        """Loads and measures; `beyond` slots of each sequence lie behind the longest context.

        Raises `ModelError`.
        """
        config, weights = load(prepared)
        path = resolve(dtype, config, weights, settings.threads, prepared.cache)
        context = context_of(settings, config.context)
        longest = context + beyond
        blocks = blocks_of(settings, config, longest)
        pool = KVPool(config, blocks, longest, prefix_cache=settings.prefix_cache)
        pool.rehearse()
        model = Llama(config, weights, path, pool, MAX_ROWS, settings.threads)
        costs = measured_costs(model, settings.threads, prepared.cache, settings.max_running)
        logger.info(
            "%s: %s weights, %.2f ms for one row, %.2f ms for eight",
            *(prepared.name, path, 1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
        )
        return cls(model, pool, path, costs, context)


def blocks_of(settings: WorkerSettings, config: ModelConfig, longest: int) -> int:
    """Blocks of KV that the settings ask for; raises `ModelError` for less than one sequence's."""
    one = blocks_for(longest)
    block_bytes = BLOCK * config.kv_bytes_per_token
    if settings.kv_bytes is None:
        return max(one, min(settings.max_running * one, DEFAULT_KV_BYTES // block_bytes))
    if settings.kv_bytes < one * block_bytes:
        raise ModelError(
            f"settings.kv_bytes: {settings.kv_bytes} is not allowed; one sequence of {longest} "
            f"tokens and nodes needs {one * block_bytes} bytes"
        )
    return settings.kv_bytes // block_bytes
