"""A pipelined target under any delays: text of plain decoding, KV of fresh passes, exact books."""

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outrider.worker.pipeline.records import Move, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.mirror import DRAFT
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.pipeline.hash_stages import VOCABULARY, HashCut
from tests.unit.worker.pipeline.pipeline_world import LOCAL_NODES, World

GREEDY = SamplingParams()
SETTINGS = (
    GREEDY,
    SamplingParams(temperature=1.0, seed=7),
    SamplingParams(temperature=0.7, top_k=5, seed=8, choice=1),
    SamplingParams(temperature=1.0, seed=9, repetition_penalty=1.5, frequency_penalty=0.5),
)

seeds = st.integers(0, 2**16).map(random.Random)


def random_prompt(rng: random.Random) -> tuple[int, ...]:
    """Short ones, and ones of more than a block that begin alike."""
    length = rng.choice([1, 2, 5, 66, 70, 130])
    return (*(i % (VOCABULARY - 1) for i in range(length - 1)), rng.randrange(4))


def random_plan(rng: random.Random) -> SegmentPlan:
    rows = rng.choice([1, 2, 4, 8, 16])
    return SegmentPlan(rows, rng.randint(1, 8), rng.choice([1, 7, 64]), most_rows=rows, pays=0.0)


def submit(world: World, rng: random.Random, most: int) -> None:
    ends = () if rng.random() < 0.7 else (VOCABULARY - 1,)
    world.submit(random_prompt(rng), rng.randint(1, most), rng.choice(SETTINGS), ends)


def happen(world: World, rng: random.Random, luck: float) -> None:
    """Let one thing happen."""
    requests = world.open
    stage = rng.randrange(world.stage_count)
    moves: list[Callable[[], object]] = []
    moves += [lambda: world.step(stage), lambda: world.send(stage)] * 4
    moves += [lambda: world.deliver(rng.randint(0, world.stage_count))] * 5
    moves += [world.fill, world.leader_sends] * 2
    if requests:
        one = rng.choice(requests)
        moves += [lambda: world.grow(one, rng, luck), lambda: world.receive_growth(one)]
        moves += [lambda: world.hear(one), lambda: world.add_local(one, rng)]
    rng.choice(moves)()


class Pipeline(RuleBasedStateMachine):
    """`World`, with hypothesis choosing the schedule."""

    @initialize(stages=st.integers(1, 5), rng=seeds)
    def start(self, stages: int, rng: random.Random) -> None:
        self.world = World(HashCut(stages), random_plan(rng))
        self.submit(rng)

    @rule(rng=seeds)
    def submit(self, rng: random.Random) -> None:
        if len(self.world.open) < 5:
            submit(self.world, rng, most=30)

    @rule(rng=seeds, luck=st.sampled_from([0.2, 0.6, 0.95]), steps=st.integers(1, 60))
    def run_a_while(self, rng: random.Random, luck: float, steps: int) -> None:
        for _ in range(steps):
            happen(self.world, rng, luck)

    @rule(rng=seeds)
    def fill(self, rng: random.Random) -> None:
        self.world.leader.plan = random_plan(rng)
        self.world.fill()

    @rule(stage=st.integers(0, 5), times=st.integers(1, 4))
    def deliver(self, stage: int, times: int) -> None:
        for _ in range(times):
            self.world.leader_sends()
            self.world.deliver(min(stage, self.world.stage_count))

    @precondition(lambda self: self.world.open)
    @rule(rng=seeds)
    def cancel(self, rng: random.Random) -> None:
        self.world.cancel(rng.choice(self.world.open))

    @precondition(lambda self: self.world.open)
    @rule(rng=seeds)
    def lose_draft(self, rng: random.Random) -> None:
        self.world.lose_draft(rng.choice(self.world.open))

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @invariant()
    def holds(self) -> None:
        self.world.check_books()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestPipeline = Pipeline.TestCase
TestPipeline.settings = settings(
    max_examples=60,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def run_schedule(seed: int, stages: int, requests: int, luck: float) -> World:
    """A long random schedule; then everything is answered."""
    rng = random.Random(seed)
    world = World(HashCut(stages), random_plan(rng))
    for _ in range(1000 * stages):
        if len(world.open) < requests:
            submit(world, rng, most=60)
        happen(world, rng, luck)
        if world.open and rng.random() < 0.002:
            world.cancel(rng.choice(world.open))
        if world.open and rng.random() < 0.01:
            world.lose_draft(rng.choice(world.open))
    world.finish()
    return world


@pytest.mark.parametrize(("stages", "requests"), [(1, 4), (2, 1), (3, 4), (5, 1)])
def test_any_schedule_gives_the_text_of_plain_decoding(stages: int, requests: int) -> None:
    lucks = (0.4, 0.7, 0.9, 1.0)
    worlds = [run_schedule(10 * stages + i, stages, requests, lucks[i]) for i in range(4)]
    counts = sum((world.counts for world in worlds), start=Counter[str]())
    assert counts["accepted"] > 0.2 * counts["tokens"], "speculation was not seen to work"
    assert counts["fall-in"] > 10
    assert counts["fall-out"] > 10
    assert counts["pipeline stays full"] > 5, "no root was found in flight or back"
    assert counts["dropped rows"] > 0, "no row was dropped before it was computed"
    assert counts["late growth"] > 0
    if requests > 1:
        assert counts["shared segments"] > 10
    else:
        assert counts["lost drafts with rows"] > 0


@pytest.mark.parametrize("handled", [2, 3])
def test_a_root_on_its_way_lives_though_the_next_row_in_its_slot_dies(handled: int) -> None:
    """Its node is committed while the row waits in the first stage, to be computed or sent on; its
    slot goes to a row of a draft that is lost."""
    world = World(HashCut(2), SegmentPlan(rows=1, in_flight=8, prompt_rows=8))
    request = world.submit((1, 2, 3), 8, GREEDY)
    right = world.true_token(request, (1, 2, 3))
    add_nodes(world, request, [right], logprob=-0.1)
    assert world.fill()  # the root's segment
    assert world.fill()  # the node's
    arrive(world)
    for _ in range(handled):
        world.step(0)
    for _ in range(2):  # Begin, and the root's segment
        world.send(0)
        world.deliver(1)
        world.step(1)
    world.send(1)
    world.deliver(2)
    assert world.tokens(request)[3:] == (right,)
    wrong = [token for token in range(VOCABULARY) if token != right][: LOCAL_NODES + 1]
    add_nodes(world, request, wrong[:-1], logprob=-4.0)
    logprobs = np.array([-0.1], np.float32)
    growth = Growth(3, 1, np.array([0]), np.array(wrong[-1:], np.int32), logprobs)
    world.sequence(request).mirror.receive(growth, 1, np.ones(VOCABULARY, np.bool_))
    assert world.fill()
    world.lose_draft(request)
    arrive(world)
    stage = world.stages[0].stage
    first, move, second, killing = (*stage.outgoing, *stage.incoming)
    assert isinstance(first, Segment)
    assert isinstance(move, Move)
    assert isinstance(second, Segment)
    assert isinstance(killing, Move)
    assert killing.freed.tolist() == first.slots.tolist()
    assert [first.count, second.count] == [1, 0]
    world.finish()


def add_nodes(world: World, request: int, tokens: list[int], logprob: float) -> None:
    """Children of the root are added, as a draft that is gone has left them."""
    count = len(tokens)
    logprobs = np.full(count, logprob, np.float32)
    mirror = world.sequence(request).mirror
    mirror.add_local(np.full(count, ROOT, np.int32), np.array(tokens, np.int32), logprobs, DRAFT)


def arrive(world: World) -> None:
    """All that the leader has sent arrives at the first stage."""
    while world.leader.outgoing:
        world.leader_sends()
        world.deliver(0)
