"""Cost curves of numeric paths: seconds of a pass by its rows, and their mean by what a role runs.

A few layers stand for all of them. Leaves the choice between paths to `numeric_path`.
"""

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import Role
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.costs.step_costs import never_falling
from outrider.worker.costs.step_timing import borrowed, chain_rows
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.matrix import Matrix
from outrider.worker.model.rows import Rows

Floats = NDArray[np.float32]
Curve = Mapping[int, float]
"""Seconds of a pass through the whole model, by its rows."""
Weights = Mapping[str, Matrix]
logger = logging.getLogger(__name__)

SHARES: Mapping[Role, Mapping[int, float]] = MappingProxyType(
    {
        Role.TARGET: {1: 0.50, 2: 0.20, 4: 0.20, 8: 0.05, 16: 0.02, 32: 0.01, 64: 0.02},
        Role.DRAFT: {1: 0.40, 2: 0.35, 4: 0.08, 8: 0.12, 16: 0.03, 64: 0.02},
    }
)
"""Share of a role's passes that run about so many rows, as counted over chats of one user with the
demo's pair. Target: of the passes of two processes .52 are plain, and all of them where drafting
rests; of the others 2 rows .36, 3 or 4 .41, 5 to 8 .18. Draft: 1 or 2 rows nearly always where the
target waits for it, up to its width of 8 where it grows a tree beside the target. Both: 3 or 4
chunks of a prompt of 200 tokens in 160 passes for 250 tokens. What many users run, 16 and more, is
weighed little: there the planner spends fewer rows on drafts."""
ROWS = tuple(sorted({rows for shares in SHARES.values() for rows in shares}))
LAYERS = 4
"""Most layers that stand for all of them."""
CONTEXT = 64
EVICTED_BYTES = 96 << 20
"""Read between timed passes, so that the few layers come from memory as all of them would."""
MIN_ROUNDS, MAX_ROUNDS = 3, 15
ROUND_SECONDS = 1.5
"""Time spent on rounds, unless there are too few or too many of them."""
HOPELESS = 2.0
"""A path whose passes take so many times another's, for either role, is timed in one round alone:
noise on a busy machine is less, and fp32 and bf16 take most of a round (Zen 5, the demo's target:
1.9 s a round of three paths, 0.4 s of int8)."""


def mean_pass(curve: Curve, role: Role) -> float:
    """Return the mean seconds of a role's passes."""
    return sum(share * curve[rows] for rows, share in SHARES[role].items())


def measured_curves(
    models: Mapping[NumericPath, Llama], layers: int
) -> dict[NumericPath, dict[int, float]]:
    """Measure samples of a model of `layers` layers, all in turns, so that what disturbs the
    machine for a while disturbs all alike.

    Noise only adds, so that the least of many times is taken, and never more than what more rows
    take: two measurements of one machine then agree.
    """
    evictor = evictor_array()
    least = {(path, rows): (math.inf, math.inf) for rows in ROWS for path in models}
    curves: dict[NumericPath, dict[int, float]] = {}
    timed, rounds, began = set(models), 0, time.perf_counter()
    while rounds < MIN_ROUNDS or (
        rounds < MAX_ROUNDS and time.perf_counter() - began < ROUND_SECONDS
    ):
        for path, rows in ((path, rows) for rows in ROWS for path in models if path in timed):
            whole, bare = pass_seconds(models[path], rows, evictor)
            known = least[path, rows]
            least[path, rows] = (min(known[0], whole), min(known[1], bare))
        for path in timed:
            curves[path] = _curve([least[path, rows] for rows in ROWS], layers, models[path])
        timed, rounds = hopeful(curves), rounds + 1
    logger.info("timed %s in %d rounds", ", ".join(models), rounds)
    return curves


def hopeful(curves: Mapping[NumericPath, Curve]) -> set[NumericPath]:
    """Return the paths that some role may still choose, by what is known so far."""
    return {
        path
        for role in SHARES
        for path, curve in curves.items()
        if mean_pass(curve, role) < HOPELESS * min(mean_pass(c, role) for c in curves.values())
    }


def _curve(timed: list[tuple[float, float]], layers: int, sample: Llama) -> dict[int, float]:
    """Return the curve of the whole model from times of a sample, with its head and without."""
    whole, bare = np.array(timed).T
    seconds = never_falling(whole + bare * (layers / sample.config.layers - 1))
    return dict(zip(ROWS, seconds.tolist(), strict=True))


@contextlib.contextmanager
def samples(
    config: ModelConfig, weights: Weights, paths: Sequence[NumericPath], threads: int
) -> Iterator[dict[NumericPath, Llama]]:
    """Yield the first layers and the head on each of `paths`, side by side in memory."""
    with contextlib.ExitStack() as stack:
        models = {}
        for path in paths:
            models[path] = sample(config, weights, path, threads)
            stack.callback(models[path].close)
        yield models


def sample(config: ModelConfig, weights: Weights, path: NumericPath, threads: int) -> Llama:
    """Build the model's first layers and its head, with a KV cache of their own."""
    few = config.part(0, min(_layers_that_fill(config), config.layers))
    longest = CONTEXT + ROWS[-1]
    kv_cache = HostKVCache(few.kv_shape, blocks_for(longest), longest)
    model = Llama(few, weights, path, kv_cache, ROWS[-1], PassOptions(threads))
    kv_cache.k_t[:], kv_cache.v[:] = _noise(kv_cache.k_t.shape), _noise(kv_cache.v.shape)
    return model


def _layers_that_fill(config: ModelConfig) -> int:
    """Return how many layers are no longer in a cache; all paths together have to fit in memory."""
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden
    bytes_each = attention + 3 * config.hidden * config.ffn  # one a weight, as int8
    return max(1, min(LAYERS, EVICTED_BYTES // bytes_each))


def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def pass_seconds(model: Llama, rows: int, evictor: NDArray[np.int64]) -> tuple[float, float]:
    """Return the seconds of a pass of the sample, with its head and without it."""
    with borrowed(model.kv_cache) as block_table:
        whole = chain_rows(rows, CONTEXT, block_table, model.config.vocab)
    bare = dataclasses.replace(whole, outputs=np.zeros(0, np.int32))
    return _cold_seconds(model, whole, evictor), _cold_seconds(model, bare, evictor)


def evictor_array() -> NDArray[np.int64]:
    """Return what is read between timed passes; ones, for untouched zeros share one page."""
    return np.ones(EVICTED_BYTES // 8, np.int64)


def _cold_seconds(model: Llama, batch: Rows, evictor: NDArray[np.int64]) -> float:
    evictor.sum()
    began = time.perf_counter()
    model.forward(batch)
    return time.perf_counter() - began
