"""Stages whose layers are shared by ranks: the bits of the whole model over as many ranks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.rows import Rows, prompt_rows, tree_rows
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.runners import ParallelStageSampler
from outrider.worker.pipeline.stage import LayerExecutor
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tiny
from tests.unit.worker.parallel.rank_threads import shared_model

LAYERS = 3
TOKENS = np.random.default_rng(0).integers(0, 256, 60).astype(np.int32)
NOTHING = np.empty(0, np.int32)
SEEDED = SamplingParams(temperature=0.8, seed=11)


def passes(whole: LeadingModel) -> list[Rows]:
    """A prompt, and a tree behind it: the pool's numbers are those of every stage."""
    table = whole.kv_cache.admit(NOTHING, whole.kv_cache.longest)
    assert table is not None
    offsets = np.array([41, 42, 43, 44], np.int32)
    ancestors = np.array([[41, 0, 0], [41, 42, 0], [41, 43, 0], [41, 43, 44]], np.int32)
    depth = np.array([1, 2, 2, 3], np.int32)
    prefix = np.full(4, 41, np.int32)
    tree = tree_rows(TOKENS[41:45], offsets, table, prefix, ancestors, depth)
    root = prompt_rows(TOKENS[45:46], 44, table, True)
    prompt = prompt_rows(TOKENS[:41], 0, table, False)
    whole.kv_cache.free(table)
    return [prompt, tree, root]


def moved(rows: list[Rows]) -> tuple[np.ndarray, np.ndarray]:
    """Slots of the tree's accepted path, and those that it is committed to."""
    slots = rows[1].slots
    return slots[[2, 3]], slots[[1, 2]]


@contextlib.contextmanager
def stages(
    folder: Path, cut: tuple[LayerRange, ...], memory: bool = True
) -> Iterator[list[LeadingModel]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(shared_model(folder, 2, memory=memory, layers=layers))
            for layers in cut
        ]


@pytest.mark.parametrize(("memory", "tied"), [(True, False), (False, True)])
def test_stages_over_ranks_have_the_bits_of_the_whole_model(
    tmp_path: Path, memory: bool, tied: bool
) -> None:
    folder = write_tiny(tmp_path, layers=LAYERS, vocab=301, tie_word_embeddings=tied)
    with shared_model(folder, 2, memory=memory) as whole:
        given = passes(whole)
        expected = []
        for number, rows in enumerate(given):
            if number == 2:
                whole.kv_cache.move_slots(*moved(given))
            expected.append(whole.forward(rows).copy())
    cut = (LayerRange(0, 1, LAYERS), LayerRange(1, 2, LAYERS), LayerRange(2, 3, LAYERS))
    with stages(folder, cut, memory) as models:
        executors = [LayerExecutor(model) for model in models]
        for number, rows in enumerate(given):
            if number == 2:
                for executor in executors:
                    executor.move(*moved(given))
            hidden = None
            for executor in executors:
                hidden = executor.compute(rows, hidden).copy()
            assert hidden is not None
            assert np.array_equal(hidden, expected[number])
    assert expected[1].shape == (4, 301)


def test_ranks_of_the_last_stage_sample_among_themselves(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, layers=LAYERS, vocab=301)
    with shared_model(folder, 2) as whole:
        given = passes(whole)
        first, *_ = (whole.forward(rows) for rows in given[:1])
        assert len(first) == 0
        expected = ParallelStageSampler(whole, 260).sample(given[1], None, [SEEDED] * 4)
    with stages(folder, (LayerRange(0, 2, LAYERS), LayerRange(2, 3, LAYERS))) as models:
        gathered: list[int] = []
        side_by_side = models[1]._side_by_side
        models[1]._side_by_side = lambda own: (gathered.append(len(own)), side_by_side(own))[1]  # type: ignore[method-assign]
        sampler = ParallelStageSampler(models[1], 260)
        none = sampler.sample(given[0], models[0].forward_layers(given[0], None), [])
        assert len(none) == 0
        gathered.clear()
        hidden = models[0].forward_layers(given[1], None)
        assert sampler.sample(given[1], hidden, [SEEDED] * 4).tolist() == expected.tolist()
        assert gathered == []
