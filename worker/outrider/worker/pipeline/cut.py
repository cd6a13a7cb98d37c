"""Cut of a model's layers over pipeline stages: the slowest stage as fast as it can be.

Arithmetic on costs. Leaves measuring them to the caller, and what a stage holds of a
checkpoint to `model.layer_range`.
"""

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from outrider.contract.settings import PipelineSettings
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange


class PartCosts(NamedTuple):
    """Costs of a model's parts in one pass, in any unit."""

    layer: float
    """Cost of one layer; above 0."""
    embedding: float
    """Cost of the first stage beside its layers."""
    head: float
    """Cost of the last stage beside its layers: final norm, head and sampling."""


def weight_costs(config: ModelConfig) -> PartCosts:
    """Return costs by the numbers of weights that a pass of few rows reads.

    What stages go by that were told neither a cut nor costs: all come to the same.
    """
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden
    layer = attention + 3 * config.hidden * config.ffn
    return PartCosts(layer, config.hidden, config.outputs * config.hidden)


def cut_by_cost(layers: int, stages: int, costs: PartCosts) -> tuple[LayerRange, ...]:
    """Cut so that the most expensive stage costs least, then the next, and so on.

    Each stage gets one layer, then each further layer goes where the sum is least with it; of equal
    stages to the first. Raises `SettingsError` for more stages than layers.
    """
    check(layers, PipelineSettings(stages=stages))
    beside = [0.0] * stages
    beside[0] += costs.embedding
    beside[-1] += costs.head
    counts = [1] * stages
    after = [(2 * costs.layer + extra, stage) for stage, extra in enumerate(beside)]
    heapq.heapify(after)
    for _ in range(layers - stages):
        cost, stage = after[0]
        counts[stage] += 1
        heapq.heapreplace(after, (cost + costs.layer, stage))
    return cut_as_given(layers, counts)


def cut_as_given(layers: int, counts: Sequence[int]) -> tuple[LayerRange, ...]:
    """Cut into stages of so many layers each.

    Raises `SettingsError` for more stages than layers, for a stage without a layer, and for counts
    that do not add up to `layers`.
    """
    check(layers, PipelineSettings(stages=len(counts), cut=tuple(counts)))
    ends = list(itertools.accumulate(counts))
    return tuple(
        LayerRange(end - count, end, layers) for count, end in zip(counts, ends, strict=True)
    )


def check(layers: int, pipeline: PipelineSettings) -> None:
    """Raise `SettingsError` for a cut that a model of so many layers cannot have."""
    pipeline.check("settings.pipeline")
    pipeline.check_layers(layers)
