"""Seconds of one pass of the target, of its plain draft, and of a draft of fewer layers.

Interleaved on one thread, the fastest of many: what else runs on the machine only adds.
"""

import dataclasses
import time
from collections.abc import Callable

import numpy as np
from tools.feature_draft.start import Pair

from outrider.distil.answers import all_wanted
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.load import load
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.rows import prompt_rows

CONTEXT = 128
ROWS = (1, 4, 9)
REPETITIONS = 150
TARGET, PLAIN = "target", "plain draft"


def pass_seconds(pair: Pair, layers: tuple[int, ...]) -> dict[str, dict[int, float]]:
    """Return seconds by model and rows; besides the pair, of the plain draft cut to `layers`."""
    models = {TARGET: _passes(pair.target), PLAIN: _passes(pair.draft)}
    models |= {f"draft of {count}": _passes(pair.draft, count) for count in layers}
    best: dict[str, dict[int, float]] = {name: dict.fromkeys(ROWS, np.inf) for name in models}
    for _ in range(REPETITIONS):
        for name, run in models.items():
            for rows in ROWS:
                began = time.perf_counter()
                run(rows)
                best[name][rows] = min(best[name][rows], time.perf_counter() - began)
    return best


def _passes(prepared: PreparedModel, layers: int | None = None) -> Callable[[int], object]:
    """Return a function that runs so many rows behind a context."""
    config, weights = load(prepared)
    config = dataclasses.replace(config, layers=layers or config.layers)
    kv_cache = HostKVCache(config.kv_shape, 8, 256)
    model = Llama(config, weights, NumericPath.INT8, kv_cache, CONTEXT, PassOptions(1))
    table = kv_cache.admit(np.zeros(0, np.int32), 256)
    assert table is not None
    tokens = np.arange(CONTEXT, dtype=np.int32)
    model.forward(prompt_rows(tokens, 0, table, wants_output=False))
    by_rows = {
        rows: all_wanted(prompt_rows(tokens[:rows], CONTEXT, table, wants_output=True))
        for rows in ROWS
    }
    return lambda rows: model.forward(by_rows[rows])
