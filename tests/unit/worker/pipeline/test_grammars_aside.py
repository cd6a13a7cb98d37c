"""Sequences whose grammars are compiled late or never, beside others that go on."""

import random
from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from llguidance import LLTokenizer

from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.messages import Finish
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.pipeline.build import segment
from tests.unit.worker.pipeline.forms import FORM, FORM_PROMPT, FormCut, held_grammars
from tests.unit.worker.pipeline.pipeline_world import World
from tests.unit.worker.pipeline.test_pipeline import happen

SETTINGS = (SamplingParams(), SamplingParams(temperature=1.0, seed=7, repetition_penalty=1.3))
PLAIN_PROMPT = (0, 2, 3)


def run_until(world: World, request: int, rng: random.Random) -> None:
    """Let things happen until a request has ended."""
    for _ in range(50_000):
        if request in world.finished:
            return
        happen(world, rng, luck=0.8)
    raise AssertionError("the request has not ended")


def world_of(stages: int, grammars: Grammars) -> World:
    plan = SegmentPlan(rows=4, in_flight=stages + 1, prompt_rows=8)
    return World(FormCut(stages), plan, grammars=grammars)


@pytest.mark.parametrize(("stages", "sampling"), [*zip((1, 3), SETTINGS, strict=True)])
def test_others_go_on_while_a_grammar_is_compiled(stages: int, sampling: SamplingParams) -> None:
    rng, may_compile = random.Random(stages), Event()
    grammars = held_grammars(may_compile)
    world = world_of(stages, grammars)
    formed = world.submit(FORM_PROMPT, 40, sampling, grammar=FORM)
    for _ in range(2):
        run_until(world, world.submit(PLAIN_PROMPT, 30, sampling), rng)
    assert world.texts[formed] == []
    assert world.stages[-1].stage.waits
    may_compile.set()
    grammars.compiled(FORM).result()
    run_until(world, formed, rng)
    world.finish()
    assert len(world.texts[formed]) == 40
    assert not world.stages[-1].stage.waits


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_that_ends_while_its_grammar_is_compiled_leaves_nothing(restarted: bool) -> None:
    rng, may_compile = random.Random(1), Event()
    grammars = held_grammars(may_compile)
    world = world_of(2, grammars)
    formed = world.submit(FORM_PROMPT, 40, SETTINGS[0], grammar=FORM)
    run_until(world, world.submit(PLAIN_PROMPT, 30, SETTINGS[0]), rng)
    if restarted:
        world.restart()
    world.cancel(formed)
    world.finish()
    assert not world.stages[-1].stage.waits
    may_compile.set()


def test_a_grammar_whose_compilation_raises_ends_its_request_alone() -> None:
    def build() -> LLTokenizer:
        raise ValueError("no tokenizer")

    world = world_of(2, Grammars(build))
    formed = world.submit(FORM_PROMPT, 40, SETTINGS[0], grammar=FORM)
    plain = world.submit(PLAIN_PROMPT, 30, SETTINGS[0])
    assert world.grammars is not None
    world.grammars.compiled(FORM).exception()
    world.finish()
    assert world.finished == {formed: Finish.GRAMMAR_FAILED, plain: Finish.LENGTH}
    assert world.texts[formed] == []


def test_one_row_of_a_sequence_waits_for_its_grammar_however_large_its_tree() -> None:
    rng, may_compile = random.Random(3), Event()
    grammars = held_grammars(may_compile)
    world = world_of(2, grammars)
    formed = world.submit(FORM_PROMPT, 40, SETTINGS[0], grammar=FORM)
    plain = world.submit(PLAIN_PROMPT, 30, SETTINGS[0])
    world.grow(formed, rng, luck=0.9)
    world.receive_growth(formed)
    run_until(world, plain, rng)
    assert sum(world.sequence(formed).source_rows) == 0
    may_compile.set()
    grammars.compiled(FORM).result()
    run_until(world, formed, rng)
    assert len(world.texts[formed]) == 40


def test_a_row_behind_a_root_that_waits_for_its_grammar_breaks_the_rules() -> None:
    rng, may_compile = random.Random(4), Event()
    grammars = held_grammars(may_compile)
    world = world_of(1, grammars)
    formed = world.submit(FORM_PROMPT, 40, SETTINGS[0], grammar=FORM)
    run_until(world, world.submit(PLAIN_PROMPT, 30, SETTINGS[0]), rng)
    placed, position = world.sequence(formed).kv, len(FORM_PROMPT)
    slot = int(placed.block_table.table[0]) * BLOCK + position
    row = segment(10_000, {10_000: (placed.number, slot)})
    row = replace(row, hidden=None, positions=np.array([position], np.int32))
    stage = world.stages[0].stage
    assert stage.waits
    assert not stage.incoming
    stage.receive(row)
    with pytest.raises(ProtocolViolation, match=r"sequence 0 is sampled after 2 rows before"):
        stage.step()
    may_compile.set()
