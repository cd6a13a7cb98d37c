"""Steps of a model timed on a device as an engine runs them, and by the device alone.

Leaves shapes and rooflines to `decode_step`. Runs on CPU tensors too, so that it can be tested.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from bench.growing_draft import GrowingDraft
from bench.report import Spread, median_and_range
from outrider.worker.costs.step_timing import borrowed, chain_rows
from outrider.worker.gpu.cuda_graphs import graphs_for
from outrider.worker.gpu.model import NO_MOVES, GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.params import SamplingParams

WARMUPS = 3
REPEATS = 30
WINDOW = 4
"""Passes of a draft from commit to commit."""
NO_TOKENS = np.empty(0, np.int32)
GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds of one thing."""

    step: Spread
    """From rows on the host to ids on the host."""
    device: Spread
    """Of the pass and its logits, once it has begun on the device."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """A step's one part: the likeliest token after each row."""

    rows: Rows
    sampling: SamplingParams = GREEDY
    logits_processor: None = None
    logits_wanted: bool = False
    path_tokens: NDArray[np.int32] = field(default_factory=lambda: NO_TOKENS)


@dataclass(frozen=True, slots=True)
class Step:
    """A target's pass."""

    rows: Rows
    parts: Sequence[Greedy]


def one_step(model: GpuModel, rows: int, context: int, repeats: int = REPEATS) -> Timed:
    """Of a sequence's `rows` rows behind `context` positions, sampled greedily."""
    model.graphs = graphs_for(model.device)
    runner = GpuTargetRunner(model, model.config.vocab)
    with borrowed(model.kv_cache) as block_table:
        made = chain_rows(rows, context, block_table, model.config.vocab)
        step = Step(made, [Greedy(made)])
        return timed(model, made, lambda: runner.run(step), repeats)


def growing(
    model: GpuModel, width: int, context: int, chained: int, repeats: int = REPEATS
) -> Timed:
    """Of a pass of a draft that expands `width` leaves, with `chained` passes a launch.

    The device's figure is that of the pass alone, without choosing leaves.
    """
    with borrowed(model.kv_cache) as block_table:
        leaves = chain_rows(width, context, block_table, model.config.vocab)
        alone = [on_device(model, leaves) for _ in range(WARMUPS + repeats)][WARMUPS:]
    model.graphs = graphs_for(model.device)  # captured ones read another runner's buffers
    draft = GrowingDraft(model, context, width, chained)
    try:
        passes = [draft.seconds(WINDOW) * 1e6 for _ in range(WARMUPS + repeats)][WARMUPS:]
    finally:
        draft.close()
    return Timed(median_and_range(passes), median_and_range(alone))


def timed(model: GpuModel, rows: Rows, run: Callable[[], object], repeats: int) -> Timed:
    """`run`, which runs `rows`, by the host's clock; and they alone by the device's."""
    steps = median_and_range([_seconds(run) * 1e6 for _ in range(WARMUPS + repeats)][WARMUPS:])
    alone = [on_device(model, rows) for _ in range(WARMUPS + repeats)]
    return Timed(steps, median_and_range(alone[WARMUPS:]))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def on_device(model: GpuModel, rows: Rows) -> float:
    """Return microseconds of one pass and its logits, staged beforehand."""
    shape = model.inputs.stage(rows, NO_MOVES, None)

    def work() -> None:
        model.forward_pass.body(shape.rows, shape.groups)
        model.forward_pass.head(shape.outputs)

    def run() -> None:
        model.graphs.run(("alone", shape.rows, shape.groups, shape.outputs), work)

    with model.copies.computing():
        return _events(run) if model.device.startswith("cuda") else _seconds(run) * 1e6


def _events(run: Callable[[], object]) -> float:
    """Return microseconds between two events of the current stream around `run`."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.current_stream().synchronize()  # what was staged is there
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3
