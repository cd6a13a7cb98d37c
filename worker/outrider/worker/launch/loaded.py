"""A loaded model: weights on their numeric path, KV cache, measured step costs.

Leaves loading to `load_cpu` and `load_gpu`, what runs on it to the schedulers.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from outrider.contract.settings import MAX_NODE_ROWS, WorkerSettings
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.costs.step_timing import Measurable
from outrider.worker.engine.runner import LanguageModel
from outrider.worker.errors import ModelError
from outrider.worker.host.process import keep_apart
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama
from outrider.worker.parallel.leader import RankLeader
from outrider.worker.parallel.placement import RankPlacement

if TYPE_CHECKING:
    from outrider.worker.launch.rank_group import RankGroup

ROW_CAPACITY = 2 * MAX_NODE_ROWS
"""Rows of one pass: as many for roots and nodes as for prefill."""
DEFAULT_KV_BYTES = 2 << 30


class EngineModel(LanguageModel, Measurable, Protocol):
    """A model as schedulers and runners see it, on any device and number of ranks."""

    def close(self) -> None:
        """End the threads and processes beside the engine."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is loaded: weights, KV cache, step costs."""

    model: EngineModel
    kv_cache: KVCache
    costs: StepCosts
    context: int
    """Most tokens of one sequence."""
    kv_bytes: int
    """Bytes of keys and values, in all ranks."""
    on_gpu: bool = False
    path_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the role's mean pass, by each path that `dtype: auto` chose from; else empty."""

    @property
    def path(self) -> str:
        """Numeric path of its weights."""
        return self.model.path

    @property
    def longest_pass(self) -> float:
        """Seconds of the largest pass at the longest context, as measured."""
        return self.costs.seconds(ROW_CAPACITY, self.context)

    def limit_passes(self) -> None:
        """Limit passes by the measured costs, once all is compiled: a longer one is stuck."""
        if isinstance(self.model, RankLeader):
            self.model.watchdog.set_limit(self.longest_pass)

    def keep_threads_apart(self) -> None:
        """Keep the threads of its passes to a processor each, where these are as many; the caller's
        is one of them, and threads that it starts later stay on its processor."""
        if isinstance(self.model, Llama):
            keep_apart(self.model.pass_threads.helpers)


def start_rank_group(
    settings: WorkerSettings,
    prepared: PreparedModel,
    device: str | None = None,
    layers: LayerRange | None = None,
) -> "RankGroup":
    """Start the ranks of a model that this process leads; raises `ModelError` and `GroupLost`.

    `device`: this one's, if each has one; `layers` of a pipeline stage, None: all. Loads torch,
    which only a group needs and which takes seconds.
    """
    from outrider.worker.launch.rank_group import RankGroup

    placement = RankPlacement.of(os.environ)
    return RankGroup(settings, prepared, placement, ROW_CAPACITY, device, layers)


def blocks_asked_for(kv_bytes: int, longest: int, each: int) -> int:
    """Return the blocks of `each` bytes; raises `ModelError` if too few for one sequence."""
    one = blocks_for(longest)
    if kv_bytes < one * each:
        raise ModelError(
            f"settings.kv_bytes: {kv_bytes} is not allowed; one sequence of {longest} "
            f"tokens and nodes needs {one * each} bytes"
        )
    return kv_bytes // each
