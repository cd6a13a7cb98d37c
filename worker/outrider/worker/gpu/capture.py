"""Capture of CUDA graphs before a worker serves, so that no request waits for one.

Leaves what a graph holds to `model` and the runners.
"""

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterator

import numpy as np

from outrider.contract.settings import PrefillKind
from outrider.kernels.gpu.attention_inputs import group_rows
from outrider.worker.costs.step_timing import borrowed
from outrider.worker.draft.batch import LEAF_ROWS, DraftBatch, DraftPart
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import MAX_NEW_NODES, DraftSession, RunningMean
from outrider.worker.engine.runner import ChildQuery, TargetRunner
from outrider.worker.gpu.buckets import MOVES, group_bucket, up_to
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.shard import enough_memory
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.link.wire import Close, CloseReason, Limits, Open
from outrider.worker.model.rows import CHUNK, Rows, joined, prompt_rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams

logger = logging.getLogger(__name__)

SAMPLINGS = (GREEDY, SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_p=0.9))
"""One for each variant of sampling."""


LINK = SESSION = 1
PROMPT = np.zeros(1, np.int32)
DEPTH = 8
"""Levels of a captured chain's tree, more than its passes."""
NO_LEAVES = np.empty(0, np.int32)


def ready_runner(model: object, vocabulary: int, prefill: PrefillKind) -> TargetRunner:
    """Return the runner of a target that was loaded on devices, with its graphs."""
    assert isinstance(model, GpuModel | LeadingGpuModel)
    runner = GpuTargetRunner(model, vocabulary)
    own = model if isinstance(model, GpuModel) else model.share
    _captured(own, lambda: capture(runner, own, prefill))
    return runner


def ready_draft_runner(model: object, vocabulary: int, chained: int) -> GpuDraftRunner:
    """Return the runner of a draft that was loaded on a device, with its graphs."""
    assert isinstance(model, GpuModel)
    config = model.config
    runner = GpuDraftRunner(model, config.output_ids, vocabulary, config.output_share, chained)
    _captured(model, lambda: capture_draft(runner, model, vocabulary))
    return runner


def _captured(model: GpuModel, run: Callable[[], None]) -> None:
    if model.graphs.captures:
        started = time.monotonic()
        with enough_memory(model.device):
            run()
        logger.info("captured graphs in %.1f s", time.monotonic() - started)


def capture(
    runner: TargetRunner, model: GpuModel, prefill: PrefillKind = PrefillKind.EXACT
) -> None:
    """Run rows in each bucket and in as many groups as they can be, each variant of sampling, moves
    of KV, and a chunk of a prompt by the library if prompts go that way."""
    with borrowed(model.kv_cache) as block_table:
        for passes in passes_of(model, block_table):
            for made in passes:
                runner.run(DummyStep(made))
            for sampling in SAMPLINGS:
                runner.run(DummyStep(made, sampling))
        for _ in _moves(model, block_table):
            runner.run(DummyStep(made))
        if prefill is PrefillKind.LIBRARY:
            chunk = np.zeros(min(CHUNK, block_table.room), np.int32)
            runner.run(DummyStep(prompt_rows(chunk, 0, block_table, True, by_library=True)))


def capture_draft(runner: GpuDraftRunner, model: GpuModel, vocabulary: int) -> None:
    """Run what `capture` runs, and chains of each width and length, each variant of sampling.

    Masks of tokens that a target does not know are captured when its link asks for them.
    """
    sessions = [_grown(runner, model, vocabulary, sampling) for sampling in SAMPLINGS]
    with borrowed(model.kv_cache) as block_table:
        for passes in passes_of(model, block_table):
            for made in passes:
                runner.run(_scored(made, sessions[0]))
            for session in sessions:
                runner.run(_scored(made, session))
        for _ in _moves(model, block_table):
            runner.run(_scored(made, session))
    runner.pass_seconds, runner.launched = RunningMean(), 0


def _grown(
    runner: GpuDraftRunner, model: GpuModel, vocabulary: int, sampling: SamplingParams
) -> DraftSession:
    """Run chains of each width and length; return the last one's session, which has ended."""
    scheduler = DraftScheduler(
        model.kv_cache, model.kv_cache.longest, 1, model.config.vocab, SendBuffer(_drop)
    )
    scheduler.sessions.link_up(LINK, np.ones(vocabulary, np.bool_))
    lengths = range(min(2, runner.chained), runner.chained + 1)
    for width, passes in itertools.product(up_to(min(LEAF_ROWS, model.row_capacity)), lengths):
        limits = Limits(SESSION, DEPTH, width, passes * MAX_NEW_NODES, error_scale=1.0)
        scheduler.apply(LINK, Open(SESSION, PROMPT, sampling, limits, len(PROMPT)), 0.0)
        session = scheduler.sessions.live[LINK, SESSION]
        step = scheduler.next(0.0)
        assert step is not None
        runner.run(step)
        scheduler.apply(LINK, Close(SESSION, CloseReason.FINISHED), 0.0)
    return session


def _scored(rows: Rows, session: DraftSession) -> DraftBatch:
    """Return a pass of rows whose children are found by the rules of a session."""
    query = ChildQuery(session.rules, np.zeros(rows.count, np.int32), NO_PATH)
    part = DraftPart(session, rows.count, NO_LEAVES, NO_LEAVES, query)
    return DraftBatch([part], rows, rows.count, 0.0)


def _drop(link: int, messages: object) -> None:
    """Send nothing."""


def _moves(model: GpuModel, block_table: BlockTable) -> Iterator[None]:
    """Queue moves of each size in turn."""
    for moves in MOVES:
        slots = np.arange(min(moves + 1, block_table.room), dtype=np.int32)
        model.kv_cache.move(block_table, slots[:-1], slots[1:])
        yield


def passes_of(model: GpuModel, block_table: BlockTable) -> Iterator[Iterator[Rows]]:
    """Yield for each bucket of rows the passes of `shared_out`."""
    size = group_rows(model.config.heads, model.config.kv_heads)
    smaller = 0
    for most in up_to(min(model.row_capacity, block_table.room)):
        yield shared_out(range(smaller + 1, most + 1), model.sequences, size, block_table)
        smaller = most


def shared_out(rows: range, sequences: int, size: int, block_table: BlockTable) -> Iterator[Rows]:
    """Yield passes of as many rows, all with outputs, one for each bucket of their groups.

    `size`: rows of a group; `sequences`: at most. All rows but one sequence's are alone, which
    makes as many groups as any other way to share them out. Their KV means nothing.
    """
    made = set[int]()
    for count in rows:
        for parts in range(1, min(count, sequences) + 1):
            groups = group_bucket(parts + (count - parts) // size, rows[-1])
            if groups in made:
                continue
            made.add(groups)
            shares = [*(1,) * (parts - 1), count - parts + 1]
            each = [prompt_rows(np.zeros(n, np.int32), 0, block_table, False) for n in shares]
            yield dataclasses.replace(joined(each), outputs=np.arange(count, dtype=np.int32))
