"""Prompts by the vendor's library: close to the kernels, and equal to themselves bit for bit."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.contract.settings import PolicySettings, PrefillKind
from outrider.kernels.gpu.weights import WeightFormat
from outrider.worker.errors import ModelError
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.launch.load import check_prefill
from outrider.worker.link.wire import Grow
from outrider.worker.messages import Finished, Submit, Tokens
from outrider.worker.model.rows import CHUNK, Rows, prompt_rows
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.sessions import TargetSessions
from tests.gpu_models import FirstWork, on_device, write
from tests.gpu_ranks import shared_on_device
from tests.kernel_outputs import TOLERANCE
from tests.unit.worker.fakes import FlatCosts
from tests.unit.worker.gpu.test_gpu_same_bits import PROMPT, growth_of, no_draft, text
from tests.unit.worker.gpu.test_gpu_target_runner import Part, Step

NOTHING = np.empty(0, np.int32)
TOKENS = np.random.default_rng(11).integers(0, 256, 192).astype(np.int32)
VOCABULARY = 260
SMALL: dict[str, Any] = {"heads": 2, "kv_heads": 1}


def admitted(model: Any) -> BlockTable:
    found = model.kv_cache.admit(NOTHING, 192)
    assert found is not None
    return found  # type: ignore[no-any-return]


def chunk(own: BlockTable, start: int, end: int) -> Rows:
    return prompt_rows(TOKENS[start:end], start, own, True, by_library=True)


def kv(model: GpuModel, own: BlockTable, end: int) -> torch.Tensor:
    """Keys and values of the first tokens."""
    slots = torch.from_numpy(own.slots(np.arange(end, dtype=np.int32))).long()
    return torch.stack([kept[:, :, slots].cpu() for kept in (model.kv_cache.k, model.kv_cache.v)])


@pytest.mark.parametrize(
    ("family", "matrices"),
    [
        ("llama untied, odd sizes", WeightFormat.PLAIN),
        ("qwen2 bias", WeightFormat.FP8),
        ("qwen3 head norms", WeightFormat.PLAIN),
    ],
)
def test_logits_are_nearly_those_of_the_kernels(
    family: str, matrices: WeightFormat, tmp_path: Path, dtype: torch.dtype, device: str
) -> None:
    folder = write(tmp_path, family, layers=1)
    model = on_device(folder, device, dtype, rows=CHUNK, matrices=matrices)
    by_kernels, by_library = admitted(model), admitted(model)
    exact = model.forward(prompt_rows(TOKENS[:9], 0, by_kernels, True)).copy()
    found = model.forward(chunk(by_library, 0, 9)).copy()
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= 4 * TOLERANCE[dtype] * np.abs(exact).max()
    both = [kv(model, own, 9).float() for own in (by_kernels, by_library)]
    assert (both[0] - both[1]).abs().max() <= 4 * TOLERANCE[dtype] * both[0].abs().max()


def test_a_rows_bits_do_not_depend_on_where_chunks_are_cut(tmp_path: Path, device: str) -> None:
    model = on_device(write(tmp_path, layers=2, **SMALL), device, rows=CHUNK, blocks=6)
    model.graphs = graphs = FirstWork()
    results = []
    for cuts in ([0, 128, 133], [0, 7, 120, 128, 129, 133]):
        own = admitted(model)
        for start, end in itertools.pairwise(cuts):
            logits = model.forward(chunk(own, start, end)).copy()
        results.append((logits, kv(model, own, 133)))
    (expected, written), (found, rewritten) = results
    assert np.array_equal(found, expected)
    assert torch.equal(written, rewritten)
    if not model.graphs.captures:
        assert len([key for key in graphs.works if key[0] == "library"]) == 1


def test_rows_of_two_chunks_are_refused(tmp_path: Path, device: str) -> None:
    model = on_device(write(tmp_path, layers=1, **SMALL), device, rows=CHUNK)
    with pytest.raises(ValueError, match="positions 100 to 128 in passes of up to 128 rows"):
        model.launch(chunk(admitted(model), 100, 129))


def test_a_step_of_both_kinds_returns_results_in_the_order_of_its_parts(
    tmp_path: Path, device: str
) -> None:
    model = on_device(write(tmp_path, layers=1, **SMALL), device, rows=CHUNK)
    runner, (one, other) = GpuTargetRunner(model, VOCABULARY), (admitted(model) for _ in range(2))
    sampling = SamplingParams(temperature=1.3, seed=4)
    kernels = Part(prompt_rows(TOKENS[:3], 0, one, True), SamplingParams(), None, True)
    library = Part(chunk(other, 0, 5), sampling, None, True)
    alone = []
    for part in (kernels, library):
        (found,) = runner.run(Step((part,)))
        alone.append((found.tokens.tolist(), found.logits.copy()))
    assert not np.array_equal(alone[0][1], alone[1][1])
    silent = Part(dataclasses.replace(library.rows, outputs=NOTHING), sampling, None, False)
    for parts in ((kernels, library), (library, kernels), (silent, kernels)):
        for part, found in zip(parts, runner.run(Step(parts)), strict=True):
            if part is silent:
                assert len(found.tokens) == 0
                continue
            tokens, logits = alone[part is library]
            assert found.tokens.tolist() == tokens
            assert np.array_equal(found.logits, logits)


@dataclasses.dataclass
class Run:
    """Two requests of one target, and the KV of the second when it has written enough."""

    model: GpuModel
    prefill: PrefillKind = PrefillKind.LIBRARY

    def __post_init__(self) -> None:
        selector = RowSelector.start(FlatCosts(), PolicySettings(), CHUNK)  # type: ignore[arg-type]
        self.outbox: list[Any] = []
        self.scheduler = TargetScheduler(
            self.model.kv_cache,
            120,
            2,
            TargetSessions(lambda link, message: None, selector),
            self.outbox,
            LogitsProcessors(VOCABULARY),
            self.prefill,
        )
        self.written: torch.Tensor | None = None

    def play(self, prompt: int, count: int, wanted: int) -> list[int]:
        """Return the second request's text; its KV is kept once `wanted` tokens have some."""
        for number in (1, 2):
            tokens = TOKENS[number : number + prompt]
            submit = Submit(number, tokens, SamplingParams(), count, (), True, 0.0)
            self.scheduler.receive(submit, 0.0)
        runner, now = GpuTargetRunner(self.model, VOCABULARY), 0.0
        while (step := self.scheduler.next(now, may_wait=False)) is not None:
            now += 0.01
            self.scheduler.settle(step, runner.run(step), now)
            for sequence in self.scheduler.admission.running:
                self._look_at(sequence, wanted)
        assert len([m for m in self.outbox if isinstance(m, Finished)]) == 2
        sent = (m.ids for m in self.outbox if isinstance(m, Tokens) and m.request == 2)
        return [token for ids in sent for token in ids]

    def _look_at(self, sequence: Sequence, wanted: int) -> None:
        if sequence.submit.request == 2 and sequence.computed >= wanted:
            self.written = kv(self.model, sequence.kv, wanted)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_preempted_answer_has_the_text_and_the_kv_of_one_that_was_not(
    prefix_cache: bool, tmp_path: Path, device: str
) -> None:
    """Five blocks are one too few for both once they are longer than 112 tokens and 16 rows."""
    folder = write(tmp_path, layers=2, **SMALL)
    runs = []
    for blocks in (6, 5):
        model = on_device(folder, device, rows=CHUNK, blocks=blocks)
        model.kv_cache.prefix_cache = prefix_cache
        run = Run(model)
        runs.append((run.play(108, 9, 115), run.written))
        preempted = run.scheduler.stats.counters.preemptions
        assert (preempted > 0) == (blocks == 5)
    (plain, written), (again, rewritten) = runs
    assert len(plain) == 9
    assert again == plain
    assert written is not None
    assert rewritten is not None
    assert torch.equal(rewritten, written)


def test_a_text_is_the_same_with_drafts_and_without(tmp_path: Path, device: str) -> None:
    model = on_device(write(tmp_path, layers=1, **SMALL), device, rows=CHUNK)
    sampling, count = SamplingParams(temperature=0.9, seed=77), 7
    plain, _ = text(model, sampling, count, no_draft, PrefillKind.LIBRARY)
    known = PROMPT.tolist() + plain

    def grower(position: int, first_id: int) -> Grow:
        return growth_of([9, *known[position + 1 : position + 4]], position, first_id)

    found, usage = text(model, sampling, count, grower, PrefillKind.LIBRARY)
    assert found == plain
    assert usage.accepted_rows > 2


def test_ranks_add_up_a_chunk(tmp_path: Path) -> None:
    folder = write(tmp_path, layers=1, kv_heads=1)
    whole = on_device(folder, "cpu", rows=CHUNK)
    expected = whole.forward(chunk(admitted(whole), 0, 5)).copy()
    with shared_on_device(folder, 2, "cpu", rows=CHUNK) as model:
        found = model.forward(chunk(admitted(model), 0, 5)).copy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-4


def test_a_cpu_has_no_such_library() -> None:
    check_prefill(PrefillKind.EXACT)
    with pytest.raises(ModelError, match=r"settings\.prefill: library .* allowed: exact"):
        check_prefill(PrefillKind.LIBRARY)
