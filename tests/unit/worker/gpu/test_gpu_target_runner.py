"""A target's steps on a device against the CPU's, and what they cost the host."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.engine.runner import SampledTokens, TargetRunner
from outrider.worker.gpu.device_share import SampleVariant
from outrider.worker.gpu.target_runner import GpuTargetRunner, variant_of
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import Rows, joined, prompt_rows
from outrider.worker.sampling.logits_processor import NO_PATH, LogitsProcessor, LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import on_cpu, on_device, write

NOTHING = np.empty(0, np.int32)
VOCABULARY = 262
"""No multiple of four, less than the model's rows: what is beyond may not be sampled."""
TOKENS = np.random.default_rng(3).integers(0, 256, 40).astype(np.int32)
PENALTIES = SamplingParams(temperature=0.9, seed=5, frequency_penalty=1.5, logit_bias=((7, 4.0),))
PARTS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.5, seed=2**64 - 9, choice=2**32 - 1),
    "seldom": SamplingParams(temperature=1.0, seed=11, min_p=0.05),
    "top-k": SamplingParams(temperature=1.2, top_k=9, seed=4),
    "top-p": SamplingParams(temperature=1.4, top_k=2**32 - 1, top_p=0.7, seed=5),
    "shaped": PENALTIES,
}


@dataclass(frozen=True)
class Part:
    """A chunk of a prompt; a token is sampled after every row."""

    rows: Rows
    sampling: SamplingParams
    logits_processor: LogitsProcessor | None
    logits_wanted: bool

    @property
    def path_tokens(self) -> np.ndarray:
        return NO_PATH.repeat(len(self.rows.outputs), 0)


@dataclass(frozen=True)
class Step:
    parts: tuple[Part, ...]

    @property
    def rows(self) -> Rows:
        return joined([part.rows for part in self.parts])


def step(block_tables: list[BlockTable], names: list[str], wanted: tuple[str, ...] = ()) -> Step:
    """One part for each name, of 2 rows of which the last has an output; a silent part first."""
    parts = [
        Part(prompt_rows(TOKENS[:2], 0, block_tables[-1], False), SamplingParams(), None, False)
    ]
    for number, name in enumerate(names):
        tokens = TOKENS[2 * number : 2 * number + 2]
        rows = prompt_rows(tokens, 0, block_tables[number], True)
        logits_processor = LogitsProcessors(VOCABULARY).start(PARTS[name], tokens, "")
        parts.append(Part(rows, PARTS[name], logits_processor, name in wanted))
    return Step(tuple(parts))


def runners(folder: Path, device: str) -> list[tuple[TargetRunner, list[BlockTable]]]:
    """The CPU's, then the device's, with the regions of six sequences."""
    cpu, gpu = on_cpu(folder), on_device(folder, device)
    found = []
    for model, kind in ((cpu, TargetRunner), (gpu, GpuTargetRunner)):
        block_tables = [model.kv_cache.admit(NOTHING, 64) for _ in range(6)]
        found.append((kind(model, VOCABULARY), [r for r in block_tables if r is not None]))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    "names",
    [
        ["greedy"],
        ["greedy", "sampled", "seldom"],
        ["top-k", "greedy", "top-p", "sampled", "shaped"],
    ],
    ids=["greedy", "sampled", "filtered and shaped"],
)
def test_ids_are_those_of_the_cpu_after_one_copy_in_and_one_wait(
    names: list[str], tmp_path: Path, device: str
) -> None:
    (cpu, at), (gpu, there) = runners(write(tmp_path, layers=1, kv_heads=1), device)
    wanted = ("sampled", "shaped")
    expected: list[SampledTokens] = cpu.run(step(at, names, wanted))
    copies = gpu._model.copies  # type: ignore[attr-defined]
    before = copies.sends, copies.waits
    found = gpu.run(step(there, names, wanted))
    assert (copies.sends - before[0], copies.waits - before[1]) == (1, 1)
    assert [d.tokens.tolist() for d in found] == [d.tokens.tolist() for d in expected]
    for name, mine, theirs in zip(names, found[1:], expected[1:], strict=True):
        if name in wanted:
            assert np.abs(mine.logits - theirs.logits).max() <= 1e-4
        else:
            assert mine.logits.size == 0


def test_a_step_that_samples_nothing_waits_for_nothing(tmp_path: Path, device: str) -> None:
    _, (gpu, there) = runners(write(tmp_path, layers=1, kv_heads=1), device)
    (silent,) = gpu.run(step(there, []))
    assert len(silent.tokens) == 0
    copies = gpu._model.copies  # type: ignore[attr-defined]
    assert (copies.sends, copies.waits) == (1, 0)


def test_sampling_does_no_more_than_some_row_asks_for() -> None:
    assert variant_of([SamplingParams(top_k=3, top_p=0.5)]) is SampleVariant.GREEDY
    assert variant_of([PARTS["greedy"], PARTS["seldom"]]) is SampleVariant.SAMPLED
    assert variant_of([PARTS["greedy"], PARTS["top-k"]]) is SampleVariant.FILTERED
