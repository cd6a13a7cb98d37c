"""Which graphs there are before a worker serves."""

from pathlib import Path

import numpy as np

from outrider.worker.costs.step_timing import borrowed
from outrider.worker.draft.batch import PassRows
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.gpu.buckets import MOVES
from outrider.worker.gpu.capture import capture, capture_draft
from outrider.worker.gpu.device_share import SampleVariant
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.link.wire import Commit, Limits, Open
from outrider.worker.model.rows import prompt_rows
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import FirstWork, on_device, write


def test_every_bucket_and_variant_is_captured_and_another_runner_has_its_own(
    tmp_path: Path, device: str
) -> None:
    model = on_device(write(tmp_path, layers=1, heads=2, kv_heads=1), device, rows=2)
    model.graphs = graphs = FirstWork()
    first, second = (GpuTargetRunner(model, 260) for _ in range(2))
    capture(first, model)
    bodies = {("body", 1, 1), ("body", 2, 1), ("body", 2, 2)}
    samplings = {(first._share, n, variant, 260) for n in (1, 2) for variant in SampleVariant}
    moves = {("move", size) for size in MOVES}
    assert set(graphs.works) == bodies | samplings | moves
    with borrowed(model.kv_cache) as block_table:
        second.run(DummyStep(prompt_rows(np.zeros(1, np.int32), 0, block_table, True)))
    own = {(second._share, 1, SampleVariant.GREEDY, 260)}
    assert set(graphs.works) == bodies | samplings | moves | own
    assert model.kv_cache.used == 0


def test_no_step_of_a_draft_waits_for_a_graph(tmp_path: Path, device: str) -> None:
    """Whatever its sessions' width, sampling, number and commits are."""
    model = on_device(write(tmp_path, layers=1, heads=2, kv_heads=1), device, rows=3)
    model.graphs = graphs = FirstWork()
    runner = GpuDraftRunner(model, None, 300, chained=2)
    capture_draft(runner, model, 300)
    assert model.kv_cache.used == 0
    captured = set(graphs.works)
    scheduler = DraftScheduler(model.kv_cache, 96, 2, 300, SendBuffer(lambda link, messages: None))
    scheduler.allow(PassRows(prefill=1, leaves=2))
    scheduler.sessions.link_up(1, np.ones(300, np.bool_))
    prompt = np.arange(2, dtype=np.int32)
    for number, (width, top_k) in enumerate(((2, 0), (1, 4)), start=1):
        sampling = SamplingParams(temperature=0.8, top_k=top_k, seed=7)
        limits = Limits(number, depth=6, width=width, nodes_ahead=12, error_scale=1.0)
        scheduler.apply(1, Open(number, prompt, sampling, limits, len(prompt)), 0.0)
        while (step := scheduler.next(0.0)) is not None:
            scheduler.settle(step, runner.run(step), 0.0)
        tree = scheduler.sessions.live[1, number].tree
        path = [tree.nodes.token[tree.nodes.slot.argmax()]]
        scheduler.apply(1, Commit(number, tree.root_position, np.array(path, np.int32)), 0.0)
    assert runner.answered > 0
    assert set(graphs.works) == captured
