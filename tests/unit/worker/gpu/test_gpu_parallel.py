"""Ranks with a device each: the logits and tokens of one device, whatever is asked for."""

from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from torch.distributed import HashStore

from outrider.contract.settings import AllReduceKind, Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.shard import Terms
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import INTERPRETED
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.launch.build_draft import draft_runner
from outrider.worker.launch.gpu_rank_group import MEBIBYTE, least_free
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.rows import prompt_rows
from outrider.worker.parallel.collectives import ProcessGroup
from tests.gpu_models import on_device, write
from tests.gpu_ranks import LOOPBACK, shared_on_device
from tests.unit.worker.gpu.test_gpu_target_runner import PARTS, TOKENS, VOCABULARY, step

NOTHING = np.empty(0, np.int32)
NAMES = ["top-p", "greedy", "sampled"]
TOLERANCE = 1e-4


@pytest.fixture
def device() -> str:
    """CPU tensors alone: threads share a GPU's context, and NCCL wants a device for each rank."""
    return "cpu"


def block_tables(model: GpuModel | LeadingGpuModel, count: int) -> list[BlockTable]:
    """Sequences in blocks of their own, shared out alike."""
    found = [model.kv_cache.admit(NOTHING, 64) for _ in range(count)]
    return [block_table for block_table in found if block_table is not None]


@pytest.mark.parametrize(("family", "degree"), [("llama", 2), ("qwen2 bias", 3)])
def test_tokens_are_those_of_one_device(
    family: str, degree: int, tmp_path: Path, device: str
) -> None:
    folder = write(tmp_path, family, layers=1)
    whole = on_device(folder, device)
    expected = GpuTargetRunner(whole, VOCABULARY).run(
        step(block_tables(whole, 4), NAMES, ("sampled",))
    )
    with shared_on_device(folder, degree, device) as model:
        runner = GpuTargetRunner(model, VOCABULARY)
        found = runner.run(step(block_tables(model, 4), NAMES, ("sampled",)))
    assert [d.tokens.tolist() for d in found] == [d.tokens.tolist() for d in expected]
    assert len({d.tokens[0] for d in found[1:]}) > 1
    for name, mine, theirs in zip(NAMES, found[1:], expected[1:], strict=True):
        assert mine.logits.size == (VOCABULARY if name == "sampled" else 0)
        if mine.logits.size:
            assert np.abs(mine.logits - theirs.logits).max() <= TOLERANCE


def test_shaped_rows_are_drawn_of_gathered_logits(tmp_path: Path, device: str) -> None:
    assert "shaped" in PARTS
    folder = write(tmp_path, layers=1, kv_heads=1)
    whole = on_device(folder, device)
    expected = GpuTargetRunner(whole, VOCABULARY).run(step(block_tables(whole, 2), ["shaped"]))
    with shared_on_device(folder, 2, device) as model:
        found = GpuTargetRunner(model, VOCABULARY).run(step(block_tables(model, 2), ["shaped"]))
        (silent,) = GpuTargetRunner(model, VOCABULARY).run(step(block_tables(model, 1), []))
    assert [d.tokens.tolist() for d in found] == [d.tokens.tolist() for d in expected]
    assert silent.tokens.size == 0


def test_moves_are_repeated_by_all_ranks(tmp_path: Path, device: str) -> None:
    folder = write(tmp_path, layers=1, kv_heads=1)
    results = []

    def run(model: GpuModel | LeadingGpuModel) -> None:
        (own,) = block_tables(model, 1)
        model.forward(prompt_rows(TOKENS[:6], 0, own, False))
        model.kv_cache.move(own, np.array([5, 2], np.int32), np.array([1, 3], np.int32))
        results.append(model.forward(prompt_rows(TOKENS[6:8], 4, own, True)).copy())

    whole = on_device(folder, device)
    run(whole)
    with shared_on_device(folder, 2, device) as model:
        run(model)
    assert results[1].shape == results[0].shape == (1, 300)
    assert np.abs(results[1] - results[0]).max() <= TOLERANCE
    (own,) = block_tables(whole, 1)
    whole.forward(prompt_rows(TOKENS[:6], 0, own, False))
    unmoved = whole.forward(prompt_rows(TOKENS[6:8], 4, own, True))
    assert np.abs(unmoved - results[0]).max() > TOLERANCE


def test_a_rank_with_little_memory_decides_for_all() -> None:
    store, found = HashStore(), dict[int, int]()

    def ask(rank: int, free: int) -> None:
        found[rank] = least_free(ProcessGroup(store, rank, 2, LOOPBACK), free)

    other = Thread(target=ask, args=(1, 70_000_000_000))
    other.start()
    ask(0, 71_000_000_000)
    other.join(60)
    assert found[0] == found[1]
    assert 70_000_000_000 - MEBIBYTE < found[0] <= 70_000_000_000


@pytest.mark.parametrize("all_reduce", AllReduceKind)
def test_every_rank_builds_what_the_leader_tells(all_reduce: AllReduceKind) -> None:
    for dtype in (Dtype.AUTO, Dtype.FP32, Dtype.BF16, Dtype.FP8):
        terms = Terms(dtype, longest=193, rows=128, sequences=64, all_reduce=all_reduce)
        assert Terms.decode(terms.encode()) == terms


def test_a_draft_over_ranks_is_ranked_on_the_host(tmp_path: Path, device: str) -> None:
    folder = write(tmp_path / "tiny", layers=1, heads=2, kv_heads=2)
    uri = ModelSettings(uri=f"file://{folder}")
    own = WorkerSettings(role=Role.DRAFT, name="tiny", model=uri, cache=str(tmp_path))
    with shared_on_device(folder, 2, device) as model:
        loaded = LoadedModel(model, model.kv_cache, INTERPRETED, 96, 0, on_gpu=True)
        assert type(draft_runner(loaded, prepare_models(own).vocabulary)) is DraftRunner
