"""Loading of one pipeline stage on the CPU: its layers and their ranks, KV cache, state machine.

Leaves its server to `server.stage_node`. All stages come to the same cut and context by themselves,
from the same settings and model; the leader uses as many blocks of KV as the least stage has.
"""

import logging
import os
from dataclasses import dataclass, replace

from outrider.contract.process import ENV_NODES
from outrider.contract.settings import Device, Dtype, SettingsError, StageLink, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.kept_weights import KeptWeights
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.costs.numeric_path import independent_rows
from outrider.worker.errors import LinkBroken, ModelError
from outrider.worker.host.device import check_dtype
from outrider.worker.kv.block_pool import BLOCK, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.build_target import logits_processors
from outrider.worker.launch.load_cpu import blocks_of
from outrider.worker.launch.load_steps import LoadSteps
from outrider.worker.launch.loaded import ROW_CAPACITY, start_rank_group
from outrider.worker.launch.prepare import Models, context_of
from outrider.worker.launch.warm_up_stage import pass_seconds, warm_up_stage
from outrider.worker.link import distributed
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.placement import LEADER, RankPlacement
from outrider.worker.parallel.runners import ParallelStageSampler
from outrider.worker.parallel.step_message import InitMessage
from outrider.worker.pipeline.cut import cut_as_given, cut_by_cost, weight_costs
from outrider.worker.pipeline.stage import LayerExecutor, Stage
from outrider.worker.pipeline.stage_sampler import RankSampler, StageSampler
from outrider.worker.pipeline.wire.hello import StageFacts, StageIdentity
from outrider.worker.pipeline.wire.limits import MAX_TREE_BLOCKS, RecordLimits
from outrider.worker.sampling.logits_processor import LogitsProcessors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedStage:
    """One stage, ready to compute."""

    identity: StageIdentity
    limits: RecordLimits
    executor: LayerExecutor
    processors: LogitsProcessors
    """Processors of the last stage's sampler; the other stages have no use for them."""
    ranks: RankSampler | None
    """The ranks of this stage, if it has several."""
    pass_seconds: float = 0.0
    """Seconds of a pass of the most rows, as measured."""

    def make_stage(self) -> Stage:
        """Return the state machine, without sequences."""
        sampler = StageSampler(self.processors) if self.identity.is_last else None
        return Stage(self.executor, sampler, self.ranks)

    def close(self) -> None:
        """End its threads and ranks; no pass may run."""
        self.executor.close()


def load_stage(
    settings: WorkerSettings, place: StagePlace, models: Models, steps: LoadSteps
) -> LoadedStage:
    """Load, probe and warm up a stage; `steps` are told what is done.

    With several ranks, starts the others and leads them. Raises `ModelError`, `GroupLost` when a
    rank is gone before all are ready, and `SettingsError` for more stages than layers, another sum
    of layers, ranks on several machines, or on GPUs.
    """
    check_ranks(settings, RankPlacement.of(os.environ))
    distributed = settings.pipeline.link is StageLink.DISTRIBUTED
    if distributed:
        steps.begin("loads torch")
        load_torch()
    config = models.own.config()
    layers = cut_of(settings, config)[place.index]
    model = load_layers(settings, layers, models, steps)
    identity = StageIdentity(
        revision=models.own.revision,
        stages=settings.pipeline.stages,
        facts=StageFacts(
            stage=place.index,
            layers=layers,
            dtype=str(model.path),
            blocks=model.kv_cache.blocks,
            rows=ROW_CAPACITY,
            context=context_of(settings, config.context),
        ),
        hidden=config.hidden,
        vocabulary=models.vocabulary,
        distributed=distributed,
    )
    limits = RecordLimits(
        identity.facts.blocks,
        identity.facts.rows,
        identity.facts.context,
        models.vocabulary,
        layers.embeds,
    )
    ranks = None
    if isinstance(model, LeadingModel):
        ranks = ParallelStageSampler(model, models.vocabulary)
    executor = LayerExecutor(model)
    loaded = LoadedStage(identity, limits, executor, logits_processors(models), ranks)
    width = None if layers.embeds else config.hidden
    steps.begin("warms up")
    warm_up_stage(loaded.make_stage(), width)
    rows = min(identity.facts.rows, identity.facts.context)
    steps.begin("times its longest pass")
    loaded = replace(loaded, pass_seconds=pass_seconds(loaded.make_stage(), width, rows))
    logger.info("%s holds %s of %s in %s", identity, layers, models.own.name, model.path)
    return loaded


def cut_of(settings: WorkerSettings, config: ModelConfig) -> tuple[LayerRange, ...]:
    """Return the layers of each stage: as given, else by the weights that each part reads.

    Raises `SettingsError`.
    """
    pipeline = settings.pipeline
    if pipeline.cut:
        return cut_as_given(config.layers, pipeline.cut)
    return cut_by_cost(config.layers, pipeline.stages, weight_costs(config))


def load_layers(
    settings: WorkerSettings, layers: LayerRange, models: Models, steps: LoadSteps
) -> Llama | LeadingModel:
    """Load the layers of one stage alone, with a KV cache of as many blocks as they have memory
    for, on one rank or on several.

    Raises `ModelError`, also where a row's result would depend on its neighbours, and `GroupLost`.
    """
    whole, ranks = models.own.config(), settings.tensor_parallel
    config = layers.config(whole)
    longest = BLOCK * (blocks_for(context_of(settings, whole.context)) + MAX_TREE_BLOCKS)
    blocks = blocks_of(settings, config, longest)
    steps.begin(f"reads {layers}")
    group = start_rank_group(settings, models.own, layers=layers) if ranks > 1 else None
    share = Shard(config, LEADER, ranks)
    weights = CheckpointTensors(models.own, share.cut, lambda name: layers.holds(name, whole))
    path = path_of(settings.model.dtype, weights)
    kv_cache = HostKVCache(share.config.kv_shape, blocks, longest, prefix_cache=False)
    pack = KeptWeights(models.own, share).packed
    options = PassOptions(settings.threads, layers=layers, pack=pack)
    steps.begin(f"packs its weights in {path}")
    own = Llama(share.config, weights, path, kv_cache, ROW_CAPACITY, options)
    steps.begin("compiles, and compares rows alone and beside others")
    if not independent_rows(own):
        raise ModelError(f"dtype {path}: a row's result depends on its neighbours here")
    if group is None:
        return own
    steps.begin(f"waits for its {ranks - 1} other ranks")
    return group.lead(own, InitMessage(path, blocks, longest, ROW_CAPACITY))


def load_torch() -> None:
    """Load what a distributed group takes, before others wait for it; raises `ModelError`."""
    try:
        distributed.require()
    except LinkBroken as error:
        raise ModelError(f"settings.pipeline.link: distributed cannot be had: {error}") from None


def check_ranks(settings: WorkerSettings, placement: RankPlacement) -> None:
    """Raise `SettingsError` for a stage whose ranks would be on several machines, or on GPUs."""
    if settings.device is Device.GPU:
        raise SettingsError(
            "settings.device: gpu is not allowed where settings.pipeline.stages is more than 1: "
            f"stages compute on CPUs; allowed: {Device.AUTO}, {Device.CPU}"
        )
    if placement.nodes > 1:
        raise SettingsError(
            f"{ENV_NODES}: {placement.nodes} is not allowed where settings.pipeline.stages is more "
            "than 1: the ranks of a stage are on one machine"
        )


def path_of(dtype: Dtype, weights: CheckpointTensors) -> NumericPath:
    """Return a stage's numeric path. Stages must not measure each on its own: AUTO is the one that
    keeps a quantised model's weights, fp32 for others.

    Raises `ModelError` for a dtype of GPUs.
    """
    check_dtype(dtype, gpu=False)
    if dtype is Dtype.AUTO:
        return weights.path or NumericPath.FP32
    return NumericPath(dtype)
