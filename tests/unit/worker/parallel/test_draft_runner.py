"""Ranks of a draft that score children among themselves find those of one process."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.engine.runner import ChildQuery, ChildRules, DraftRunner
from outrider.worker.model.rows import Rows, joined, prompt_rows
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.runners import ParallelDraftRunner
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tiny
from tests.unit.worker.parallel.rank_threads import shared_model

VOCABULARY = 260
TOKENS = np.random.default_rng(0).integers(0, 256, 40).astype(np.int32)
SOME = np.random.default_rng(1).random(VOCABULARY) < 0.7
ALL = np.ones(VOCABULARY, np.bool_)


@dataclass(frozen=True)
class Part:
    own: Rows
    query: ChildQuery


@dataclass(frozen=True)
class Step:
    parts: tuple[Part, ...]

    @property
    def rows(self) -> Rows:
        return joined([part.own for part in self.parts])


def step_of(model: LeadingModel, *samplings: SamplingParams) -> Step:
    """A chunk of a prompt for each, children of its last row wanted, and one chunk without."""
    parts = []
    for number, sampling in enumerate((*samplings, SamplingParams())):
        block_table = model.kv_cache.admit(np.empty(0, np.int32), 64)
        assert block_table is not None
        rows = prompt_rows(TOKENS[: 8 + number], 0, block_table, number < len(samplings))
        allowed = SOME if number % 2 else ALL
        rules = ChildRules(sampling, 1.0 + number, 2 + number, allowed, None)
        positions = rows.positions[rows.outputs] + np.int32(1)
        parts.append(Part(rows, ChildQuery(rules, positions, NO_PATH)))
    return Step(tuple(parts))


@pytest.mark.parametrize("degree", [2, 3])
def test_children_are_those_of_gathered_logits(tmp_path: Path, degree: int) -> None:
    folder = write_tiny(tmp_path, vocab=301, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, degree) as model:
        gathered: list[int] = []
        forward = model.forward
        model.forward = lambda rows: (gathered.append(rows.count), forward(rows))[1]  # type: ignore[method-assign]
        free = (
            SamplingParams(),
            SamplingParams(temperature=0.8, seed=11),
            SamplingParams(temperature=1.5, seed=2),
        )
        step = step_of(model, *free)
        shared = ParallelDraftRunner(model, None, VOCABULARY, 0.9).run(step)
        assert gathered == []
        alone = DraftRunner(model, None, VOCABULARY, 0.9).run(step)
    assert [one.tokens.tolist() for one in shared] == [one.tokens.tolist() for one in alone]
    assert [one.tokens.shape for one in shared] == [(1, 2), (1, 3), (1, 4), (0, 0)]
    for own, other in zip(shared, alone, strict=True):
        assert np.allclose(own.logprobs, other.logprobs, atol=2e-6)
    assert SOME[shared[1].tokens].all()


def test_logits_are_gathered_for_rows_that_need_all_of_them(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, vocab=301, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, 2) as model:
        model.score = None  # type: ignore[assignment]
        runner = ParallelDraftRunner(model, None, VOCABULARY)
        step = step_of(model, SamplingParams(), SamplingParams(temperature=1.0, top_k=5, seed=1))
        filtered = runner.run(step)
        alone = DraftRunner(model, None, VOCABULARY).run(step)
    assert [one.tokens.tolist() for one in filtered] == [one.tokens.tolist() for one in alone]


def test_a_pass_without_outputs_has_no_children(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, vocab=301, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, 2) as model:
        runner = ParallelDraftRunner(model, None, VOCABULARY)
        (nothing,) = runner.run(step_of(model))
        assert nothing.tokens.size == 0
        last = step_of(model, SamplingParams()).parts[0]
        rules = replace(last.query.rules, branch=1)
        few = Step((replace(last, query=last.query._replace(rules=rules)),))
        assert runner.run(few)[0].tokens.shape == (1, 1)
