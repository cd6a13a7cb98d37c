"""Whatever happens, every path of the target writes what `tests.reference` writes.

A step in Python is compared pass by pass: what a verify pass commits, and what is left of the tree.
Runs of the compiled loop and the pipeline are compared by their texts and ends; and a target that
steps and one that runs, both without a draft, by all that they leave.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path as Folder
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outrider.contract.sources import POLICY_SOURCES, SOURCES, SourceKind
from outrider.kernels.sampling import reference as sampling_rules
from outrider.kernels.sampling.gumbel_max import sampling_tuple
from outrider.worker.compiled_loop.loop import MOST_ROOTS, Reason
from outrider.worker.compiled_loop.run import RootOutput
from outrider.worker.messages import Cancel, Finish, LinkUp
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.batch import TargetBatch, TargetPart
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import ROOT
from tests.reference import Draft, Floats, Noise, Pass, Path, Target, speculate
from tests.tiny_models import write_tiny
from tests.unit.worker.pipeline.llama_cut import LlamaCut
from tests.unit.worker.pipeline.pipeline_world import World
from tests.unit.worker.pipeline.test_pipeline import happen
from tests.unit.worker.tiny_engines import (
    ALLOWED,
    ALWAYS,
    NEVER,
    POLICY,
    VOCABULARY,
    TinyColocated,
    TinyLinked,
    TinyTarget,
    any_time_will_do,
    assert_same,
)

FORBIDDEN = ((21,), (264, 497), (335, 335, 335), (126, 131, 495), (418, 435, 154))
LATE = (84, 135, 149, 126)
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=7),
    SamplingParams(temperature=1.0, top_k=12, top_p=0.9, min_p=0.02, seed=2**63 + 5, choice=2),
    # A text that repeats itself, for sources without a draft.
    SamplingParams(logit_bias=((3, 100.0),)),
    SamplingParams(frequency_penalty=0.8, logit_bias=((3, 2.5), (9, -100.0))),
    SamplingParams(temperature=0.9, repetition_penalty=1.4, presence_penalty=-0.3, seed=8),
    # What is forbidden are pieces of the answers that the model gives otherwise.
    SamplingParams(min_tokens=20, late=LATE, forbidden=FORBIDDEN, forced=tuple(range(40, 52))),
)
PROMPTS = (1, 5, 58, 70, 125)
"""Tokens of each, some at the end of a block."""
MOST = 60
"""Tokens of an answer."""
EXAMPLES = 28
SOURCE_SETS = ((SourceKind.DRAFT,), (SourceKind.DRAFT, SourceKind.SUFFIX), POLICY_SOURCES)


seeds = st.integers(0, 2**16).map(random.Random)


def predicted(text: list[int], rng: random.Random) -> list[int]:
    """Return a prediction of a text: none, right, with edits, shuffled, or far longer than it."""
    whole = text * rng.choice((1, 1, 20))
    edits = rng.choice((0, 1, 5, len(whole)))
    for at in rng.sample(range(len(whole)), edits):
        whole[at : at + rng.randint(0, 3)] = rng.choices(range(VOCABULARY), k=rng.randint(0, 3))
    return whole[rng.choice((0, 0, 7)) :] if rng.random() < 0.8 else []


class Request(NamedTuple):
    """What a client asks for."""

    prompt: int
    most: int
    sampling: SamplingParams
    ends: tuple[int, ...]


class Reference:
    """Answers of the reference, by fresh forward passes of the model."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.cut = LlamaCut(folder, (1, 1), VOCABULARY)
        self.answer = cache(self._answer)

    def target(self, prompt: int, sampling: SamplingParams) -> Target:
        def logits(context: list[int]) -> Floats:
            row = self.cut.fresh.logits(tuple(context))[:VOCABULARY]
            if sampling.adjusts:
                row = sampling_rules.adjust(row, context[:prompt], context[prompt:], sampling)
            if not sampling.greedy:
                row = sampling_rules.filter_row(row, sampling_tuple(sampling))
            return row.astype(np.float64)

        return logits

    def _answer(self, prompt: int, sampling: SamplingParams) -> list[Pass]:
        """Return the passes of an answer without end tokens, by a draft that errs a little."""
        target = self.target(prompt, sampling)

        def draft(context: list[int], noise: Floats) -> Floats:
            error = np.random.default_rng(context).normal(0, 0.5, VOCABULARY)
            scores = target(context) + error + noise
            return scores - np.logaddexp.reduce(scores)

        return [*speculate(target, draft, noise_of(sampling), tokens(prompt), (), MOST, 6, 3)]

    def text(self, request: Request) -> list[int]:
        """Return the answer to a request."""
        passes = self.answer(request.prompt, request.sampling)
        whole = [token for one in passes for token in one.tokens][: request.most]
        ends = [at for at, token in enumerate(whole, 1) if token in request.ends]
        return whole[: ends[0]] if ends else whole


def tokens(prompt: int) -> list[int]:
    """Return the prompt of so many tokens, as `TinyTarget.submit` has it."""
    return [token % 97 for token in range(prompt)]


def noise_of(sampling: SamplingParams) -> Noise:
    @cache
    def noise(position: int) -> Floats:
        if sampling.greedy:
            return np.zeros(VOCABULARY)
        ids = np.arange(VOCABULARY)
        bits = sampling_rules.noise_bits(sampling.seed, sampling.choice, position, ids)
        return sampling_rules.gumbel(bits).astype(np.float64)

    return noise


def paths_of(mirror: Mirror) -> list[Path]:
    """Return each node of a mirror as its path."""
    paths: list[Path] = []
    for parent, token in zip(mirror.parent.tolist(), mirror.token.tolist(), strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    return paths


def draft_of_tree(text: list[int], tree: list[Path], verified: list[Path]) -> Draft:
    """Return a draft that proposes a tree, of which these nodes are the likeliest."""

    def logprobs(context: list[int], noise: Floats) -> Floats:
        found = np.full(VOCABULARY, -np.inf)
        above = tuple(context[len(text) :])
        for path in tree:
            if path[:-1] == above:
                found[path[-1]] = 0.0 if path in verified else -1.0
        return found

    return logprobs


@dataclass
class OnePiece:
    """A target in one piece, each of whose steps in Python is compared with the reference."""

    engine: TinyTarget
    reference: Reference
    counts: Counter[str] = field(default_factory=Counter)

    def submit(self, request: int, asked: Request, **changes: Any) -> None:
        prompt, most, sampling, ends = asked
        self.engine.submit(request, prompt, most, sampling=sampling, end_ids=ends, **changes)

    def cancel(self, request: int) -> None:
        self.engine.receive(Cancel(request))

    def text(self, request: int) -> list[int]:
        return self.engine.text(request)

    def finish(self, request: int) -> Finish | None:
        return self.engine.finish(request)

    def run_to_end(self) -> None:
        while self.engine.busy:
            self.step()
        counted = self.engine.target.stats.source_accepted
        self.counts["from a prediction"] += counted[SOURCES.index(SourceKind.PREDICTION)]

    def go_on(self, steps: int, rng: random.Random) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> int:
        """Run one step; return how many passes it stands for."""
        step = self.engine.next()
        if step is None:
            return 1
        output = self.engine.run(step)
        parts = step.parts if isinstance(step, TargetBatch) else ()
        sequences = [part.sequence for part in parts]
        before = [(one.committed().tolist(), paths_of(one.mirror)) for one in sequences]
        self.engine.settle(step, output)
        for part, (text, tree) in zip(parts, before, strict=True):
            if part.sequence.length > len(text):
                self._compare(part, text, tree)
        return self._count_run(output) if isinstance(output, RootOutput) else 1

    def _compare(self, part: TargetPart, text: list[int], tree: list[Path]) -> None:
        """Compare what a pass has committed, and the tree that it has left, with the reference."""
        submit, sequence = part.sequence.submit, part.sequence
        committed = tuple(sequence.committed()[len(text) :].tolist())
        verified = [tree[node] for node in part.nodes.tolist()]
        prompt, sampling = len(submit.prompt), submit.sampling
        target, noise = self.reference.target(prompt, sampling), noise_of(sampling)
        draft, sizes = draft_of_tree(text, tree, verified), (len(tree), len(verified), VOCABULARY)
        left = prompt + submit.max_tokens - len(text)
        expected = next(speculate(target, draft, noise, text, submit.end_ids, left, *sizes))
        assert committed == expected.tokens
        assert set(paths_of(sequence.mirror)) == expected.tree
        ended = len(committed) == left or committed[-1] in submit.end_ids
        self.counts["accepted"] += len(committed) - 1
        self.counts["fall-in"] += committed in tree
        self.counts["fall-out"] += bool(tree) and committed not in tree
        self.counts["end within a path"] += ended and committed in tree

    def _count_run(self, output: RootOutput) -> int:
        passes = [root.done for root in output.roots]
        self.counts["accepted"] += sum(one.accepted for one in passes)
        self.counts["fall-in"] += sum(one.survived for one in passes)
        self.counts["fall-out"] += sum(one.live > 0 and not one.survived for one in passes)
        self.counts["end within a path"] += output.reason is Reason.END and passes[-1].survived
        self.counts["passes of longer runs"] += len(passes) * (len(passes) > 1)
        return len(passes)


@dataclass
class Pipelined:
    """A target in stages; `World` delays its records."""

    world: World

    @property
    def counts(self) -> Counter[str]:
        return self.world.counts

    def submit(self, request: int, asked: Request, **changes: Any) -> None:
        self.world.submit(tuple(tokens(asked.prompt)), *asked[1:])

    def cancel(self, request: int) -> None:
        if request - 1 in self.world.open:
            self.world.cancel(request - 1)

    def text(self, request: int) -> list[int]:
        return self.world.texts[request - 1]

    def finish(self, request: int) -> Finish | None:
        cancelled = request - 1 in self.world.cancelled
        return Finish.CANCELLED if cancelled else self.world.finished.get(request - 1)

    def run_to_end(self) -> None:
        self.world.finish()

    def go_on(self, steps: int, rng: random.Random) -> None:
        for _ in range(25 * steps):
            happen(self.world, rng, luck=0.7)


class Histories(RuleBasedStateMachine):
    """Any history of requests, drafts and policies."""

    reference: ClassVar[Reference]
    counts: ClassVar[dict[str, Counter[str]]]

    def __init__(self) -> None:
        super().__init__()
        reference, folder = self.reference, self.reference.folder
        self.steps = OnePiece(TinyTarget(folder, 0), reference)
        self.runs = OnePiece(TinyTarget(folder), reference)
        self.linked = TinyLinked(folder)
        self.colocated = TinyColocated(folder)
        plan = SegmentPlan(rows=4, in_flight=3, prompt_rows=16)
        self.world = World(reference.cut, plan, blocks=18)
        self.paths: dict[str, OnePiece | Pipelined] = {
            "steps": self.steps,
            "runs": self.runs,
            "steps with a linked draft": OnePiece(self.linked, reference),
            "runs with a colocated draft": OnePiece(self.colocated, reference),
            "pipeline": Pipelined(self.world),
        }
        self.requests: list[Request] = []

    @property
    def open(self) -> int:
        """Requests that some path has not answered."""
        numbers = range(1, len(self.requests) + 1)
        return sum(any(p.finish(one) is None for p in self.paths.values()) for one in numbers)

    @initialize(rng=seeds)
    def begin(self, rng: random.Random) -> None:
        self.set_policy(rng)

    def submit(self, rng: random.Random) -> None:
        prompt, sampling = rng.choice(PROMPTS), rng.choice(SAMPLINGS)
        whole = self.reference.text(Request(prompt, MOST, sampling, ()))
        ends = tuple(whole[rng.randrange(MOST)] for _ in range(rng.choice((0, 0, 1, 2))))
        asked = Request(prompt, rng.randint(1, MOST), sampling, ends)
        self.requests.append(asked)
        changes: dict[str, Any] = {
            "speculate": rng.random() < 0.8,
            "stream_seconds": rng.choice((ALWAYS, NEVER, NEVER)),
            "logprobs": rng.choice((None, None, None, 1)),
            "prediction": np.array(predicted(whole, rng), np.int32),
        }
        for path in self.paths.values():
            path.submit(len(self.requests), asked, **changes)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def cancel(self, at: int) -> None:
        for path in self.paths.values():
            path.cancel(max(1, len(self.requests) - at))

    @rule(rng=seeds)
    def set_policy(self, rng: random.Random) -> None:
        policy = replace(
            POLICY,
            speculate=rng.random() < 0.8,
            max_rows=rng.randint(1, 16),
            sources=rng.choice(SOURCE_SETS),
        )
        for engine in (self.steps.engine, self.runs.engine, self.linked, self.colocated):
            engine.set_policy(policy)

    @precondition(lambda self: len(self.requests) > 3)
    @rule(link=st.integers(1, 3))
    def link_to_a_draft_that_is_silent(self, link: int) -> None:
        for path in (self.steps, self.runs):
            path.engine.receive(LinkUp(link, ALLOWED))

    @rule(rng=seeds, steps=st.integers(1, 20))
    def go_on(self, rng: random.Random, steps: int) -> None:
        """Let every path go on, with one or two requests to answer."""
        while self.open < rng.randint(1, 2):
            self.submit(rng)
        self.runs.engine.planner.most = rng.randint(1, MOST_ROOTS)
        self.linked.rng.seed(rng.random())
        for _ in range(steps):
            for _ in range(self.runs.step()):
                self.steps.step()
        for name in [*self.paths][2:]:
            self.paths[name].go_on(steps, rng)

    @precondition(lambda self: self.open)
    @rule()
    def lose_drafts(self) -> None:
        self.linked.connect()
        for request in self.world.open:
            self.world.lose_draft(request)

    @invariant()
    def all_write_the_same(self) -> None:
        for request, asked in enumerate(self.requests, 1):
            expected = self.reference.text(asked)
            for name, path in self.paths.items():
                text = path.text(request)
                assert text == expected[: len(text)], name

    @invariant()
    def a_run_leaves_what_its_steps_leave(self) -> None:
        assert_same(self.runs.engine.state(), self.steps.engine.state())

    def teardown(self) -> None:
        for name, path in self.paths.items():
            path.run_to_end()
            for request, asked in enumerate(self.requests, 1):
                if (finish := path.finish(request)) is not Finish.CANCELLED:
                    expected = self.reference.text(asked)
                    assert path.text(request) == expected, name
                    stopped = expected[-1] in asked.ends
                    assert finish is (Finish.STOP if stopped else Finish.LENGTH), name
                    path.counts["sampled"] += not asked.sampling.greedy
                    path.counts["greedy"] += asked.sampling.greedy
            self.counts.setdefault(name, Counter()).update(path.counts)


def test_a_root_that_has_nodes_and_no_candidate_counts_alike_in_a_run_and_in_steps(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_time_will_do(monkeypatch)
    Histories.reference, Histories.counts = Reference(write_tiny(tmp_path)), {}
    histories = Histories()
    histories.set_policy(random.Random(1))
    histories.go_on(random.Random(4396), steps=9)
    histories.a_run_leaves_what_its_steps_leave()


def test_any_history_writes_what_the_reference_writes(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_time_will_do(monkeypatch)
    Histories.reference, Histories.counts = Reference(write_tiny(tmp_path)), {}
    bounds = settings(
        max_examples=EXAMPLES, stateful_step_count=30, deadline=None, derandomize=True
    )
    run_state_machine_as_test(Histories, settings=bounds)
    wanted = {name: ["accepted", "fall-out", "greedy", "sampled"] for name in Histories.counts}
    for name in ("steps with a linked draft", "runs with a colocated draft", "pipeline"):
        wanted[name] += ["fall-in", "end within a path"]
    for name in [*wanted][:4]:
        wanted[name].append("from a prediction")
    for name in ("runs", "runs with a colocated draft"):
        wanted[name].append("passes of longer runs")
    unseen = [
        (name, case) for name in wanted for case in wanted[name] if not Histories.counts[name][case]
    ]
    assert not unseen, Histories.counts
