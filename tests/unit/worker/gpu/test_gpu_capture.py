"""Which graphs there are before a worker serves."""

import itertools
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.contract.settings import PrefillKind
from outrider.kernels.gpu.attention_inputs import groups_of
from outrider.worker.costs.step_timing import borrowed
from outrider.worker.draft.batch import PassRows
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.gpu.buckets import MOVES, ROWS, bucket, group_bucket
from outrider.worker.gpu.capture import capture, capture_draft, shared_out
from outrider.worker.gpu.cuda_graphs import CudaGraphs, Work
from outrider.worker.gpu.device_share import SampleVariant
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.link.wire import Commit, Limits, Open
from outrider.worker.model.rows import CHUNK, prompt_rows
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


@pytest.mark.parametrize("sequences", [1, 3, 8, 20, 128])
@pytest.mark.parametrize("size", [4, 10, 16, 64])
def test_passes_of_every_shape_have_been_captured(
    tmp_path: Path, sequences: int, size: int
) -> None:
    """However many rows each of the sequences brings, alone or beside a chunk of a prompt."""
    model = on_device(write(tmp_path, layers=1, heads=2, kv_heads=1), "cpu", rows=2)
    rng, captured = np.random.default_rng(1), set[tuple[int, int]]()
    with borrowed(model.kv_cache) as block_table:
        for smaller, most in itertools.pairwise((0, *ROWS)):
            for made in shared_out(range(smaller + 1, most + 1), sequences, size, block_table):
                captured.add(key_of(made.sequence, size))
    for count in range(1, ROWS[-1] + 1):
        for _ in range(20):
            shares = rng.random(min(count, int(rng.integers(1, sequences + 1))))
            sequence = np.sort(rng.choice(len(shares), count, p=shares / shares.sum()))
            assert key_of(sequence.astype(np.int32), size) in captured


def key_of(sequence: NDArray[np.int32], size: int) -> tuple[int, int]:
    """Rows and groups that a pass is padded to."""
    rows = bucket(len(sequence), ROWS)
    groups = groups_of(sequence, np.zeros(len(sequence), np.int32), size)
    return rows, group_bucket(len(groups), rows)


def test_a_target_whose_prompts_go_by_the_library_has_that_graph(tmp_path: Path) -> None:
    folder = write(tmp_path, layers=1, heads=2, kv_heads=1)
    model = on_device(folder, "cpu", rows=CHUNK, longest=2 * CHUNK, blocks=4)
    model.graphs = graphs = Asked()
    runner = GpuTargetRunner(model, 260)
    capture(runner, model, PrefillKind.EXACT)
    by_kernels = set(graphs.keys)
    capture(runner, model, PrefillKind.LIBRARY)
    captured = set(graphs.keys)
    assert len(captured) == len(by_kernels) + 1
    with borrowed(model.kv_cache) as block_table:
        for start, end in ((0, 5), (100, 128), (128, 256)):
            tokens = np.zeros(end - start, np.int32)
            rows = prompt_rows(tokens, start, block_table, end == 256, by_library=True)
            runner.run(DummyStep(rows))
    assert graphs.keys == captured


class Asked(CudaGraphs):
    """Runs nothing, and remembers what it was to run."""

    def __init__(self) -> None:
        self.keys = set[Hashable]()

    def run(self, key: Hashable, work: Work) -> None:
        self.keys.add(key)


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
