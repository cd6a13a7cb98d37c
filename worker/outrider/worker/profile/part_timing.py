"""Measurement of what a model's parts cost a stage: a layer, the embedding, the head and sampling.

Once per machine and model, then remembered. Few layers stand for all, as in `costs.path_timing`.
Leaves the cut to `cut`.
"""

import logging
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.costs.measurement_cache import facts_file
from outrider.worker.costs.path_timing import Weights, evictor_array, pass_seconds, sample
from outrider.worker.host.disk_cache import remember, remembered
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.tensor_names import EMBEDDING
from outrider.worker.pipeline.cut import PartCosts
from outrider.worker.sampling.params import SamplingParams

logger = logging.getLogger(__name__)

ROWS = 8
"""Of a timed pass: those of a segment, about."""
ROUNDS = 25
SAMPLING = SamplingParams(temperature=0.8, seed=1)


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


def lookup_seconds(embedding: NDArray[np.float32], evictor: NDArray[np.int64]) -> float:
    """Return the seconds of looking `ROWS` tokens up."""
    tokens = np.linspace(0, len(embedding) - 1, ROWS).astype(np.int64)
    evictor.sum()
    began = time.perf_counter()
    embedding[tokens]
    return time.perf_counter() - began


def _known(facts: Any) -> PartCosts:
    """Read what was remembered; raises `KeyError`, `TypeError` or `ValueError`."""
    costs = PartCosts(*(float(facts[name]) for name in PartCosts._fields))
    if min(costs) < 0 or costs.layer == 0:
        raise ValueError(f"no costs of parts: {costs}")
    return costs
