"""A real model in stages: KV and text, bit for bit those of the same model in one piece."""

import random
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tiny
from tests.unit.worker.pipeline.llama_cut import LlamaCut
from tests.unit.worker.pipeline.pipeline_world import World
from tests.unit.worker.pipeline.test_pipeline import happen

LAYERS = 5
CUTS = ((5,), (2, 3), (1, 3, 1), (1, 2, 1, 1), (1, 1, 1, 1, 1))
REQUESTS = (
    (10, SamplingParams()),
    (70, SamplingParams(temperature=1.0, seed=3)),
    (33, SamplingParams(temperature=0.8, top_p=0.9, seed=4, repetition_penalty=1.3)),
)
"""Tokens of the prompt, and settings."""
ANSWER = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"), layers=LAYERS)


def prompt(length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(length).integers(0, 256, length).tolist())


@pytest.mark.parametrize("counts", CUTS, ids=len)
def test_text_and_kv_are_those_of_fresh_passes(folder: Path, counts: tuple[int, ...]) -> None:
    """`World` compares each token and each slot."""
    rng = random.Random(len(counts))
    plan = SegmentPlan(rows=4, in_flight=len(counts) + 1, prompt_rows=16)
    world = World(LlamaCut(folder, counts), plan, blocks=18)
    for length, sampling in REQUESTS:
        world.submit(prompt(length), ANSWER, sampling)
    for _ in range(600 * len(counts)):
        happen(world, rng, luck=0.9)
    world.finish()
    assert [len(text) for text in world.texts.values()] == [ANSWER] * len(REQUESTS)
    assert world.counts["accepted"] > 10, "speculation was not seen to work"
    assert world.counts["pipeline stays full"] > 3
