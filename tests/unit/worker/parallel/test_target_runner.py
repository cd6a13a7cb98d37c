"""Ranks that sample among themselves take the tokens of one process with the same logits."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.engine.runner import TargetRunner
from outrider.worker.model.rows import Rows, joined, prompt_rows
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.runners import ParallelTargetRunner
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tiny
from tests.unit.worker.parallel.rank_threads import shared_model

VOCABULARY = 260
TOKENS = np.random.default_rng(0).integers(0, 256, 40).astype(np.int32)
FREE = (
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=11),
    SamplingParams(temperature=1.5, seed=2**64 - 1, choice=2),
)


@dataclass(frozen=True)
class Part:
    rows: Rows
    sampling: SamplingParams
    logits_wanted: bool = False
    logits_processor: None = None
    path_tokens: np.ndarray = field(default_factory=lambda: NO_PATH)


@dataclass(frozen=True)
class Step:
    parts: tuple[Part, ...]

    @property
    def rows(self) -> Rows:
        return joined([part.rows for part in self.parts])


def step_of(
    model: LeadingModel, samplings: tuple[SamplingParams, ...], wanted: bool = False
) -> Step:
    """A chunk of a prompt for each, with one token wanted, and one chunk without."""
    parts = []
    for number, sampling in enumerate((*samplings, SamplingParams())):
        block_table = model.kv_cache.admit(np.empty(0, np.int32), 64)
        assert block_table is not None
        output = number < len(samplings)
        rows = prompt_rows(TOKENS[: 8 + number], 0, block_table, output)
        parts.append(Part(rows, sampling, wanted and number == 0))
    return Step(tuple(parts))


@pytest.mark.parametrize("degree", [2, 3])
def test_tokens_are_those_of_gathered_logits(tmp_path: Path, degree: int) -> None:
    folder = write_tiny(tmp_path, vocab=301, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, degree) as model:
        gathered: list[int] = []
        forward = model.forward
        model.forward = lambda rows: (gathered.append(rows.count), forward(rows))[1]  # type: ignore[method-assign]
        for sampling in FREE:
            step = step_of(model, (sampling,))
            shared = ParallelTargetRunner(model, VOCABULARY).run(step)
            assert gathered == []
            alone = TargetRunner(model, VOCABULARY).run(step)
            assert gathered.pop() == step.rows.count
            assert [one.tokens.tolist() for one in shared] == [one.tokens.tolist() for one in alone]
            assert shared[0].tokens[0] >= 0


def test_logits_are_gathered_for_rows_that_need_all_of_them(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, vocab=301, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, 2) as model:
        runner = ParallelTargetRunner(model, VOCABULARY)
        filtered = runner.run(step_of(model, (SamplingParams(temperature=1.0, top_k=5, seed=1),)))
        wanted = runner.run(step_of(model, (SamplingParams(),), wanted=True))
        plain = runner.run(step_of(model, (SamplingParams(),)))
    assert filtered[0].logits.shape == wanted[0].logits.shape == (1, VOCABULARY)
    assert plain[0].logits.size == 0
    assert wanted[0].tokens.tolist() == plain[0].tokens.tolist()
