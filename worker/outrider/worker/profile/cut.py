"""`python -m outrider.worker cut`: the cut of a target over stages, by what its parts cost here.

For what starts all stages on one machine: stages that are started one by one cannot measure alike
(docs/decisions/0022). Prints one JSON object. A layer, the embedding, the head and sampling are
timed once per machine and model, then remembered; few layers stand for all, as in
`costs.path_timing`.
"""

import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.measurement_cache import facts_file
from outrider.worker.costs.path_timing import LAYERS, Weights, evictor_array, pass_seconds, sample
from outrider.worker.host.disk_cache import remember, remembered
from outrider.worker.launch.load_stage import path_of
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.matrix import Matrix, outputs_of
from outrider.worker.model.sharding import Shard
from outrider.worker.model.tensor_names import EMBEDDING
from outrider.worker.model.tensor_names import LAYERS as PREFIX
from outrider.worker.parallel.placement import LEADER
from outrider.worker.pipeline.cut import PartCosts, cut_by_cost
from outrider.worker.profile.command import print_json
from outrider.worker.sampling.params import SamplingParams

ROWS = 8
"""Rows of a timed pass: those of a segment, about."""
ROUNDS = 25
SAMPLING = SamplingParams(temperature=0.8, seed=1)


def main(settings: WorkerSettings) -> int:
    """Measure, or remember, and print the layers of each stage, and why in words.

    Raises `ModelError`, and `SettingsError` for more stages than layers.
    """
    prepared = prepare_models(settings).own
    shard = Shard(prepared.config(), LEADER, settings.tensor_parallel)
    path = path_of(settings.model.dtype, CheckpointTensors(prepared))
    costs = part_costs(
        shard.config, lambda: few_layers(prepared, shard), path, settings.threads, prepared.cache
    )
    cut = cut_by_cost(shard.whole.layers, settings.pipeline.stages, costs)
    counts = [layers.count for layers in cut]
    print_json(cut=counts, words=in_words(counts, costs))
    return 0


def few_layers(prepared: PreparedModel, shard: Shard) -> Weights:
    """Load one rank's share of the first layers, embedding and head."""
    whole = shard.whole
    first = LayerRange(0, min(LAYERS, whole.layers), whole.layers)
    last = LayerRange(whole.layers - 1, whole.layers, whole.layers)

    def wanted(name: str) -> bool:
        return first.holds(name, whole) or (last.holds(name, whole) and not name.startswith(PREFIX))

    return CheckpointTensors(prepared, shard.cut, wanted)


def in_words(counts: list[int], costs: PartCosts) -> str:
    """Say which cut was taken and why."""
    cut = " + ".join(map(str, counts))
    layer, embedding, head = (1e3 * seconds for seconds in costs)
    return (
        f"cut into {cut} layers by measured times: a layer {layer:.2f} ms, embedding "
        f"{embedding:.2f} ms, head and sampling {head:.2f} ms"
    )


def part_costs(
    config: ModelConfig,
    load: Callable[[], Weights],
    path: NumericPath,
    threads: int,
    cache: pathlib.Path,
) -> PartCosts:
    """Return the seconds of each part, remembered or measured now.

    `config` and what `load` loads are those of one rank; sums over ranks are not counted.
    """
    file = facts_file(cache, "parts", config, str(path), threads, ROWS)
    known = remembered(file, _known)
    if known is not None:
        return known
    weights = load()
    model = sample(config, weights, path, threads)
    try:
        costs = least_costs(
            lambda evictor: pass_seconds(model, ROWS, evictor),
            lambda: sampling_seconds(config.outputs),
            lambda evictor: lookup_seconds(weights[EMBEDDING], evictor),
            model.config.layers,
        )
    finally:
        model.close()
    remember(file, costs._asdict())
    return costs


def least_costs(
    passes: Callable[[NDArray[np.int64]], tuple[float, float]],
    sampling: Callable[[], float],
    lookup: Callable[[NDArray[np.int64]], float],
    layers: int,
) -> PartCosts:
    """Return costs by the least of many times: noise only adds.

    `passes` returns the seconds of a pass over `layers` layers with the head and without it.
    """
    evictor = evictor_array()
    whole = bare = sampled = looked_up = math.inf
    for _ in range(ROUNDS):
        with_head, without = passes(evictor)
        whole, bare = min(whole, with_head), min(bare, without)
        sampled, looked_up = min(sampled, sampling()), min(looked_up, lookup(evictor))
    return PartCosts(bare / layers, looked_up, max(0.0, whole - bare) + sampled)


def sampling_seconds(outputs: int) -> float:
    """Return the seconds of sampling after `ROWS` rows."""
    logits = np.zeros((ROWS, outputs), np.float32)
    began = time.perf_counter()
    Sampler(outputs).sample(logits, np.arange(ROWS), SAMPLING)
    return time.perf_counter() - began


def lookup_seconds(embedding: Matrix, evictor: NDArray[np.int64]) -> float:
    """Return the seconds of looking `ROWS` tokens up."""
    tokens = np.linspace(0, len(embedding) - 1, ROWS).astype(np.int64)
    evictor.sum()
    began = time.perf_counter()
    outputs_of(embedding, tokens)
    return time.perf_counter() - began


def _known(facts: Any) -> PartCosts:
    """Read what was remembered; raises `KeyError`, `TypeError` or `ValueError`."""
    costs = PartCosts(*(float(facts[name]) for name in PartCosts._fields))
    if min(costs) < 0 or costs.layer == 0:
        raise ValueError(f"no costs of parts: {costs}")
    return costs
