"""A model in memory, measured: weights on their numeric path, KV pool, step costs.

Leaves what runs on it to the schedulers.
"""

import logging
from dataclasses import dataclass
from typing import Self

from outrider.contract.settings import MOST_ROWS, Dtype, WorkerSettings
from outrider.kernels.linear import Path
from outrider.worker.costs import StepCosts, measured_costs
from outrider.worker.kv_pool import KVPool
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load
from outrider.worker.model.numeric import resolve
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.preparation import context_of
from outrider.worker.region import blocks_for

logger = logging.getLogger(__name__)

MAX_ROWS = MOST_ROWS + 1
"""Rows of one pass: the root and the most node rows; prompt chunks and widths need fewer."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything that an engine runs one model with."""

    model: Llama
    pool: KVPool
    path: Path
    costs: StepCosts
    context: int
    """Most tokens of one sequence."""

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
        pool = KVPool(config, settings.max_running * blocks_for(longest), longest)
        model = Llama(config, weights, path, pool, MAX_ROWS, settings.threads)
        costs = measured_costs(model, settings.threads, prepared.cache)
        logger.info(
            "%s: %s weights, %.2f ms for one row, %.2f ms for eight",
            *(prepared.name, path, 1e3 * costs.seconds(1, 128), 1e3 * costs.seconds(8, 128)),
        )
        return cls(model, pool, path, costs, context)
