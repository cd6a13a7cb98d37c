"""A real model in stages: KV and text, bit for bit those of the same model in one piece."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.worker.engine.runner import TargetRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.messages import Submit, Tokens
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.tiny_models import write_tiny
from tests.unit.worker.fakes import FlatCosts
from tests.unit.worker.pipeline.llama_cut import LONGEST, LlamaCut, load
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


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[list[int]]:
    """Texts of an unpipelined target without drafts."""
    model = load(folder, LayerRange(0, LAYERS, LAYERS), 3 * LONGEST // BLOCK)
    costs: Any = FlatCosts()
    selector = RowSelector.start(costs, PolicySettings(), 64, 0.0)
    sessions = TargetSessions(lambda link, message: None, selector)
    outbox: list[Any] = []
    vocabulary = model.config.outputs
    target = TargetScheduler(model.kv_cache, 256, 3, sessions, outbox, LogitsProcessors(vocabulary))
    for request, (length, sampling) in enumerate(REQUESTS):
        tokens = np.array(prompt(length), np.int32)
        target.receive(Submit(request, tokens, sampling, ANSWER, (), False, 0.0), 0.0)
    runner = TargetRunner(model, vocabulary)
    while (step := target.next(0.0)) is not None:
        target.settle(step, runner.run(step), 0.0)
    texts: list[list[int]] = [[] for _ in REQUESTS]
    for message in outbox:
        if isinstance(message, Tokens):
            texts[message.request] += message.ids
    return texts


@pytest.mark.parametrize("counts", CUTS, ids=len)
def test_text_and_kv_are_those_of_the_unpipelined_target(
    folder: Path, plain: list[list[int]], counts: tuple[int, ...]
) -> None:
    rng = random.Random(len(counts))
    plan = SegmentPlan(rows=4, in_flight=len(counts) + 1, prompt_rows=16)
    world = World(LlamaCut(folder, counts), plan, blocks=18)
    for length, sampling in REQUESTS:
        world.submit(prompt(length), ANSWER, sampling)
    for _ in range(600 * len(counts)):
        happen(world, rng, luck=0.9)
    world.finish()
    assert [world.texts[request] for request in world.requests] == plain
    assert all(len(text) == ANSWER for text in plain)
    assert world.counts["accepted"] > 10, "speculation was not seen to work"
    assert world.counts["pipeline stays full"] > 3
