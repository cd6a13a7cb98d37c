"""Steps of a model timed on a device as an engine runs them, and by the device alone.

A draft grows one session's tree under the real scheduler and hears of commits; a random model's
draft tokens mean nothing, but its passes are as large as any. Leaves shapes and rooflines to
`decode_step`. Runs on CPU tensors too, so that it can be tested.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.record.report import Spread, median_and_range
from outrider.worker.costs.step_timing import borrowed, chain_rows
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.gpu.cuda_graphs import graphs_for
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.model import NO_MOVES, GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.link.wire import Close, CloseReason, Commit, Limits, Open
from outrider.worker.model.rows import CHUNK, Rows, prompt_rows
from outrider.worker.sampling.params import SamplingParams

LINK, SESSION = 1, 1


class GrowingDraft:
    """One session whose prompt has `context` tokens; `width` leaves are expanded in a pass."""

    def __init__(self, model: GpuModel, context: int, width: int, chained: int) -> None:
        vocabulary = model.config.vocab
        self.runner = GpuDraftRunner(model, None, vocabulary, chained=chained)
        send_buffer = SendBuffer(self._send, coalesce=False)
        self.scheduler = DraftScheduler(
            model.kv_cache, model.kv_cache.longest, 1, vocabulary, send_buffer
        )
        self.scheduler.sessions.link_up(LINK, np.ones(vocabulary, np.bool_))
        prompt = np.random.default_rng(context).integers(0, vocabulary, context, np.int32)
        limits = Limits(SESSION, depth=32, width=width, nodes_ahead=96, error_scale=1.0)
        self.scheduler.apply(LINK, Open(SESSION, prompt, GREEDY, limits, context), 0.0)
        while self.session.needs_prefill and self.step():
            pass

    @property
    def session(self) -> Any:
        """What is drafted for."""
        return self.scheduler.sessions.live[LINK, SESSION]

    def step(self) -> bool:
        """One pass, asked for and settled; false where there is nothing to run."""
        now = time.monotonic()
        step = self.scheduler.next(now)
        if step is None:
            return False
        self.scheduler.settle(step, self.runner.run(step), now)
        return True

    def seconds(self, passes: int) -> float:
        """Of a pass, over at most `passes` of them, after a commit of the best first child."""
        self._commit()
        begin, count = time.perf_counter(), 0
        while count < passes and self.step():
            count += 1
        if not count:
            raise RuntimeError("the tree is at its limits: nothing was run")
        return (time.perf_counter() - begin) / count

    def close(self) -> None:
        """Give the session's KV back."""
        self.scheduler.apply(LINK, Close(SESSION, CloseReason.FINISHED), time.monotonic())

    def _commit(self) -> None:
        tree = self.session.tree
        first = np.flatnonzero(tree.nodes.depth == 1)
        best = first[tree.nodes.score[first].argmax()]
        tokens = tree.nodes.token[best : best + 1].astype(np.int32)
        now = time.monotonic()
        self.scheduler.apply(LINK, Commit(SESSION, tree.root_position, tokens), now)

    def _send(self, link: int, messages: Sequence[object]) -> None:
        """Drop what is sent."""


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
    """Microseconds from rows on the host to ids on the host."""
    device: Spread
    """Microseconds of the pass and its logits, once it has begun on the device."""


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
    vocabulary = model.config.vocab
    return _step_of(model, lambda table: chain_rows(rows, context, table, vocabulary), repeats)


def prompt_chunk(model: GpuModel, context: int, by_library: bool, repeats: int = REPEATS) -> Timed:
    """Of a whole chunk of a prompt behind `context` positions, by the kernels or by the library.

    `context`: a multiple of `CHUNK`. The last row is sampled greedily.
    """
    tokens = np.arange(CHUNK, dtype=np.int32) % model.config.vocab
    return _step_of(
        model, lambda table: prompt_rows(tokens, context, table, True, by_library), repeats
    )


def _step_of(model: GpuModel, make: Callable[[BlockTable], Rows], repeats: int) -> Timed:
    """Of the rows that `make` places in a block table."""
    model.graphs = graphs_for(model.device)
    runner = GpuTargetRunner(model, model.config.vocab)
    with borrowed(model.kv_cache) as block_table:
        made = make(block_table)
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
        model.forward_pass.body(shape.rows, shape.groups, rows.by_library)
        model.forward_pass.head(shape.outputs)

    def run() -> None:
        model.graphs.run(("alone", *shape, rows.by_library), work)

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
