"""Steps of both roles' schedulers without a model, so that what lies between passes is compiled.

A process that compiles beside another begins with it while that one compiles passes and sampling.
Only types matter to compiled code: tokens and children are arbitrary.
"""

from dataclasses import dataclass

import numpy as np

from outrider.contract.settings import WorkerSettings
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import SampledTokens, TopChildren
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch import build_draft, build_target
from outrider.worker.launch.loaded import ROW_CAPACITY, LoadedModel
from outrider.worker.launch.warmup import discard, warm_up_draft, warm_up_target
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.batch import TargetBatch, TargetPart

TOKEN = 4
"""What each row samples; among the nodes that grow in a warm-up, so that some are accepted."""
COSTS = StepCosts((1, ROW_CAPACITY), (1, 2), np.full((1, 2, 2), 1e-3))
"""Every pass takes the same millisecond."""


@dataclass(frozen=True, slots=True)
class NoModel:
    """What schedulers ask of a model."""

    config: ModelConfig
    kv_cache: HostKVCache
    path: str = "none"
    row_capacity: int = ROW_CAPACITY

    def forward(self, rows: Rows) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Return logits of 0, [outputs, vocabulary]."""
        return np.zeros((len(rows.outputs), self.config.vocab), np.float32)

    def close(self) -> None:
        """Do nothing: there are no threads."""


@dataclass(frozen=True, slots=True)
class SamplesOneToken:
    """A target's runner whose rows all sample the same token."""

    model: NoModel

    def run(self, step: TargetBatch) -> list[SampledTokens]:
        """Return it for each part's rows with output."""
        return [self._sampled(part) for part in step.parts]

    def _sampled(self, part: TargetPart) -> SampledTokens:
        logits = self.model.forward(part.rows)
        return SampledTokens(np.full(len(logits), TOKEN, np.int32), logits)


class GrowsOneToken:
    """A draft's runner whose rows all have the same likely children."""

    def run(self, step: DraftBatch) -> list[TopChildren]:
        """Return them for each part's rows with output."""
        return [_children(len(p.query.positions), p.query.rules.branch) for p in step.parts]


def _children(rows: int, branch: int) -> TopChildren:
    tokens = np.tile(np.arange(TOKEN, TOKEN + branch, dtype=np.int32), (rows, 1))
    return TopChildren(tokens, -1.0 - tokens.astype(np.float32))


def run_schedulers(settings: WorkerSettings, config: ModelConfig) -> None:
    """Run steps of a target and of a draft, as warm-ups of engines do; on a CPU."""
    loaded, vocabulary = without_model(settings, config), config.vocab
    target = build_target.target_scheduler(
        settings, loaded, LogitsProcessors(vocabulary), discard, []
    )
    assert isinstance(loaded.model, NoModel)
    warm_up_target(target, SamplesOneToken(loaded.model), vocabulary)
    draft = build_draft.draft_scheduler(settings, loaded, SendBuffer(discard), [])
    warm_up_draft(draft, GrowsOneToken(), vocabulary)


def without_model(settings: WorkerSettings, config: ModelConfig) -> LoadedModel:
    """Return a KV cache for all running requests, and no model."""
    longest = config.context + ROW_CAPACITY
    blocks = settings.max_running * blocks_for(longest)
    kv_cache = HostKVCache(config.kv_shape, blocks, longest)
    return LoadedModel(NoModel(config, kv_cache), kv_cache, COSTS, config.context, 0)
