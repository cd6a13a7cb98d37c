"""Choice of a model's numeric path: admitted by a probe, chosen by measuring, remembered.

Leaves the paths' arithmetic to `outrider.kernels.cpu.linear`. A path is admitted only if a row's
result is bit-equal beside any other rows (speculation.md). A path asked for by name is probed at
every start. AUTO probes and measures once, and again where the processor, a package that makes
machine code, the kernels' source, the model's shape or the number of threads is another
(`measurement_cache`): probing the demo's target in memory takes 0.2 to 0.4 s, too long for a start
that can change nothing.
"""

import contextlib
import dataclasses
import logging
import pathlib
import statistics
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import Dtype
from outrider.kernels.cpu.linear import NumericPath
from outrider.worker.errors import ModelError
from outrider.worker.kv.block_pool import BlockTable, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.measurement_cache import facts_file, remember, remembered
from outrider.worker.model.rows import Rows, tree_rows
from outrider.worker.model.step_timing import borrowed, chain_rows

Floats = NDArray[np.float32]
logger = logging.getLogger(__name__)

CHOSEN = (NumericPath.FP32, NumericPath.BF16, NumericPath.INT8)
"""AUTO chooses from these. Not int4: it changes the text, so it has to be asked for."""
LAYERS = 4
"""Layers that stand for all of them."""
PROBED = (2, 3, 4, 5, 7, 8, 9, 12, 16)
"""Row counts of the probe: every way in which the linear layers group rows."""
TIMED = (1, 8)
"""Row counts whose mean time decides: plain decoding and a verify pass."""
RUNS = 7
EVICTED_BYTES = 96 << 20
"""Read between timed passes, so that the few layers come from memory as all of them would."""
CONTEXT = 64


def resolve(
    dtype: Dtype,
    config: ModelConfig,
    weights: Mapping[str, Floats],
    threads: int,
    cache: pathlib.Path,
) -> NumericPath:
    """Return the path of `dtype`; AUTO takes the fastest admitted one and remembers it.

    Raises `ModelError` if no path, or not the one asked for, keeps rows independent.
    """
    if dtype is not Dtype.AUTO:
        with contextlib.closing(_sample(config, weights, NumericPath(dtype), threads)) as model:
            independent = independent_rows(model)
        if not independent:
            raise ModelError(f"dtype {dtype}: a row's result depends on its neighbours here")
        return NumericPath(dtype)
    file = facts_file(cache, "path", config, threads)
    known = remembered(file)
    if known is not None and known.get("path") in CHOSEN:
        return NumericPath(known["path"])
    seconds = measure_paths(config, weights, threads)
    best = min(seconds, key=lambda path: seconds[path])
    remember(file, {"path": best, "seconds": seconds})
    return best


def measure_paths(
    config: ModelConfig, weights: Mapping[str, Floats], threads: int
) -> dict[NumericPath, float]:
    """Estimate the seconds of a pass by admitted path; raises `ModelError` if there is none."""
    seconds: dict[NumericPath, float] = {}
    for path in CHOSEN:
        with contextlib.closing(_sample(config, weights, path, threads)) as model:
            independent = independent_rows(model)
            if independent:
                seconds[path] = statistics.mean(
                    _pass_seconds(model, n, config.layers) for n in TIMED
                )
        if not independent:
            logger.warning("%s is not used here: rows depend on their neighbours", path)
    if not seconds:
        raise ModelError("no numeric path keeps rows independent of each other on this machine")
    logger.info("a pass takes %s", ", ".join(f"{1e3 * s:.1f} ms {p}" for p, s in seconds.items()))
    return seconds


def independent_rows(model: Llama) -> bool:
    """True if logits of a row are bit-equal alone and beside others, at every place among them."""
    with borrowed(model.kv_cache) as block_table:
        alone = _siblings(model, block_table, 1)[0].copy()
        for count in PROBED:
            if count > model.row_capacity:
                break
            logits = _siblings(model, block_table, count)
            if not all(np.array_equal(row, alone) for row in logits[:: max(1, count - 1)]):
                return False
    return True


def _siblings(model: Llama, block_table: BlockTable, count: int) -> np.ndarray:
    """Return logits of `count` rows after one context; first and last are the same token."""
    numbers = np.arange(count, dtype=np.int32)
    tokens = np.where(numbers < count - 1, numbers * 977 % model.config.vocab, 0).astype(np.int32)
    prefix, offsets = np.full(count, CONTEXT, np.int32), numbers + np.int32(CONTEXT)
    own, ones = offsets[:, None], np.ones(count, np.int32)
    return model.forward(tree_rows(tokens, offsets, block_table, prefix, own, ones))


def _sample(
    config: ModelConfig, weights: Mapping[str, Floats], path: NumericPath, threads: int
) -> Llama:
    """Build the model's first layers and its head, with a KV cache of their own."""
    few = dataclasses.replace(config, layers=min(LAYERS, config.layers))
    longest = CONTEXT + PROBED[-1]
    kv_cache = HostKVCache(few.kv_shape, blocks_for(longest), longest)
    model = Llama(few, weights, path, kv_cache, PROBED[-1], PassOptions(threads))
    kv_cache.k_t[:], kv_cache.v[:] = _noise(kv_cache.k_t.shape), _noise(kv_cache.v.shape)
    return model


def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _pass_seconds(model: Llama, rows: int, layers: int) -> float:
    """Return the seconds of a pass through `layers` layers and the head, from the sample's."""
    with borrowed(model.kv_cache) as block_table:
        whole = chain_rows(rows, CONTEXT, block_table, model.config.vocab)
        bare = dataclasses.replace(whole, outputs=np.zeros(0, np.int32))
        with_head, without = (_cold_seconds(model, x) for x in (whole, bare))
    return with_head + without * (layers / model.config.layers - 1)


def _cold_seconds(model: Llama, rows: Rows) -> float:
    evictor = np.zeros(EVICTED_BYTES // 8, np.int64)
    times = []
    for _ in range(RUNS):
        evictor.sum()
        start = time.perf_counter()
        model.forward(rows)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
