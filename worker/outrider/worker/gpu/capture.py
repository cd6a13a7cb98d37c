"""Capture of a target's CUDA graphs before it serves, so that no request waits for one.

Leaves what a graph holds to `model` and `target`.
"""

import dataclasses
import logging
import time
from collections.abc import Iterator

import numpy as np

from outrider.worker.costs.step_timing import borrowed
from outrider.worker.engine.runner import TargetRunner
from outrider.worker.gpu.buckets import MOVES, up_to
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import Rows, joined, prompt_rows
from outrider.worker.sampling.params import SamplingParams

logger = logging.getLogger(__name__)

SAMPLINGS = (GREEDY, SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_p=0.9))
"""One for each variant of sampling."""


def ready_runner(model: object, vocabulary: int) -> TargetRunner:
    """Return the runner of a model that was loaded on devices, with its graphs."""
    assert isinstance(model, GpuModel | LeadingGpuModel)
    runner = GpuTargetRunner(model, vocabulary)
    own = model if isinstance(model, GpuModel) else model.share
    if own.graphs.captures:
        started = time.monotonic()
        capture(runner, own)
        logger.info("captured graphs in %.1f s", time.monotonic() - started)
    return runner


def capture(runner: TargetRunner, model: GpuModel) -> None:
    """Run rows in each bucket, of one sequence and of several, each variant of sampling, and moves
    of KV."""
    with borrowed(model.kv_cache) as block_table:
        for rows in up_to(min(model.row_capacity, block_table.room)):
            for made in shared_out(rows, model.sequences, block_table):
                runner.run(DummyStep(made))
            for sampling in SAMPLINGS:
                runner.run(DummyStep(made, sampling))
        for moves in MOVES:
            slots = np.arange(min(moves + 1, block_table.room), dtype=np.int32)
            model.kv_cache.move(block_table, slots[:-1], slots[1:])
            runner.run(DummyStep(made))


def shared_out(rows: int, sequences: int, block_table: BlockTable) -> Iterator[Rows]:
    """Yield so many rows, all with outputs, of 1, 2, 4, … sequences; their KV means nothing."""
    count = 1
    while count <= min(rows, sequences):
        shares = (len(share) for share in np.array_split(np.empty(rows), count))
        parts = [prompt_rows(np.zeros(n, np.int32), 0, block_table, False) for n in shares]
        yield dataclasses.replace(joined(parts), outputs=np.arange(rows, dtype=np.int32))
        count *= 2
