"""Runs of a target without a draft: the same as steps in Python, and back for each reason."""

import dataclasses
import itertools
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.compiled_loop.loop import MOST_ROOTS, Reason
from outrider.worker.compiled_loop.run import RootOutput, RootPlanner
from outrider.worker.compiled_loop.runner import CompiledTarget
from outrider.worker.engine.runner import TargetRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.messages import Cancel, Finish, Finished, LinkUp, SetPolicy, Submit, Tokens
from outrider.worker.model.llama import Llama
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.tiny_models import write_tiny
from tests.unit.worker.fakes import FlatCosts

VOCABULARY = 500
"""Fewer than the model's columns: the rest is padding."""
CONTEXT = 300
ROWS = 33
POLICY = PolicySettings(version=1, off_below_percent=0, max_rows=8)
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9, seed=3),
    SamplingParams(repetition_penalty=1.3),
)
NEVER, ALWAYS = math.inf, 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@dataclass
class Target:
    """A target on a tiny model; `passes` of a run, 0: none."""

    folder: Path
    passes: int
    outbox: list[Any] = field(default_factory=list)
    arrived: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def __post_init__(self) -> None:
        config = read_config(self.folder)
        self.kv_cache = HostKVCache(config.kv_shape, 12, CONTEXT + ROWS)
        weights = load_file(self.folder / "model.safetensors")
        self.model = Llama(config, weights, NumericPath.FP32, self.kv_cache, 64)
        runner = TargetRunner(self.model, VOCABULARY)
        self.runner = CompiledTarget(runner, self.model, VOCABULARY, self.arrived)
        selector = RowSelector.start(FlatCosts(), POLICY, ROWS, 0.0)  # type: ignore[arg-type]
        self.scheduler = TargetScheduler(
            self.kv_cache,
            CONTEXT,
            2,
            TargetSessions(lambda link, message: None, selector),
            self.outbox,
            LogitsProcessors(VOCABULARY),
        )
        self.planner = RootPlanner(self.scheduler)
        self.planner.most = self.passes
        self.scheduler.runs = self.planner

    def submit(self, request: int, prompt: int, count: int, **changes: Any) -> None:
        """Ask for `count` tokens after a prompt of so many."""
        fields: dict[str, Any] = {
            "request": request,
            "prompt": np.arange(prompt, dtype=np.int32) % 97,
            "sampling": SAMPLINGS[0],
            "max_tokens": count,
            "end_ids": (),
            "speculate": False,
            "arrived": 0.0,
            "stream_seconds": NEVER,
        }
        self.scheduler.receive(Submit(**(fields | changes)), time.monotonic())

    def step(self) -> RootOutput | None:
        """Run one step; return its output if it was a run."""
        step = self.scheduler.next(time.monotonic(), may_wait=False)
        if step is None:
            return None
        output = self.runner.run(step)
        self.scheduler.settle(step, output, time.monotonic())
        return output if isinstance(output, RootOutput) else None

    def first_run(self) -> RootOutput:
        """Step until there was a run; return its output."""
        for _ in range(20):
            if (output := self.step()) is not None:
                return output
        raise AssertionError("there was no run")

    def seen(self) -> list[tuple[Any, ...]]:
        """Return the server's messages so far, without times."""
        return [
            (m.request, m.finish, m.usage, m.detail)
            if isinstance(m, Finished)
            else (m.request, m.ids, m.passes)
            for m in self.outbox
            if isinstance(m, Finished | Tokens)
        ]

    def state(self) -> dict[str, Any]:
        """Return all that a run must leave as steps do, without times."""
        counters = self.scheduler.report().counters
        names = [name for name in counters.__slots__ if "second" not in name]
        return {
            "messages": self.seen(),
            "counters": {name: getattr(counters, name) for name in names},
            "kv": self.kv_cache.usage,
            "running": [
                (
                    s.submit.request,
                    s.committed().tolist(),
                    s.computed,
                    s.kv.table.tolist(),
                    s.kv.published,
                    s.mirror.root_position,
                    s.unsent,
                    s.unsent_passes,
                    s.usage,
                )
                for s in self.scheduler.admission.running
            ],
        }


class Histories(RuleBasedStateMachine):
    """Any history of requests, drafts and policies leaves two targets in one state: one steps pass
    by pass, the other in runs of up to so many passes."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.runs = Target(self.folder, 0), Target(self.folder, MOST_ROOTS)
        self.requests = 0

    def both(self, message: Any) -> None:
        for target in (self.steps, self.runs):
            target.scheduler.receive(message, time.monotonic())

    @rule(
        prompt=st.integers(1, 140),
        count=st.integers(1, 90),
        sampling=st.sampled_from(SAMPLINGS),
        ends=st.lists(st.integers(0, VOCABULARY - 1), max_size=40),
        speculate=st.booleans(),
        stream=st.sampled_from((ALWAYS, NEVER)),
        logprobs=st.sampled_from((None, None, None, 1)),
    )
    def submit(
        self,
        prompt: int,
        count: int,
        sampling: SamplingParams,
        ends: list[int],
        speculate: bool,
        stream: float,
        logprobs: int | None,
    ) -> None:
        self.requests += 1
        for target in (self.steps, self.runs):
            target.submit(
                self.requests,
                prompt,
                count,
                sampling=sampling,
                end_ids=tuple(ends),
                speculate=speculate,
                stream_seconds=stream,
                logprobs=logprobs,
            )

    @rule(at=st.integers(0, 2))
    def cancel(self, at: int) -> None:
        self.both(Cancel(max(1, self.requests - at)))

    @rule(speculate=st.booleans(), max_rows=st.integers(1, 16))
    def set_policy(self, speculate: bool, max_rows: int) -> None:
        policy = PolicySettings(
            version=1, off_below_percent=0, speculate=speculate, max_rows=max_rows
        )
        self.both(SetPolicy(policy))

    @rule(link=st.integers(1, 3))
    def link_up(self, link: int) -> None:
        self.both(LinkUp(link, np.ones(VOCABULARY, np.bool_)))

    @rule(passes=st.integers(1, MOST_ROOTS), steps=st.integers(1, 6))
    def go_on(self, passes: int, steps: int) -> None:
        self.runs.planner.most = passes
        for _ in range(steps):
            output = self.runs.step()
            for _ in range(1 if output is None else len(output.roots)):
                self.steps.step()

    @invariant()
    def are_the_same(self) -> None:
        assert self.runs.state() == self.steps.state()


def test_any_history_of_runs_is_that_of_steps(folder: Path) -> None:
    Histories.folder = folder
    bounds = settings(max_examples=25, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(Histories, settings=bounds)


def test_a_run_returns_when_the_answer_is_long_enough(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=9)
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.END, 8), "the first is prefill's"
    assert target.seen()[-1][1] is Finish.LENGTH


def test_a_run_returns_at_an_end_token(folder: Path) -> None:
    known = Target(folder, MOST_ROOTS)
    known.submit(1, prompt=5, count=20)
    known.first_run()
    ((_, ids, _), _) = known.seen()
    end = ids[6]
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=20, end_ids=(end,))
    assert target.first_run().reason is Reason.END
    assert target.seen()[0][1] == ids[: ids.index(end) + 1]
    assert target.seen()[-1][1] is Finish.STOP


def test_a_run_returns_where_no_logit_is_a_number(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=20)
    target.step()
    target.kv_cache.v[:] = np.nan
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.END, 1)
    assert target.seen()[-1][1] is Finish.FAILED


def test_a_run_returns_for_a_message(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=20)
    target.arrived[0] = 1
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.MESSAGE, 1)


def test_a_run_returns_when_tokens_are_due(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=20, stream_seconds=ALWAYS)
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.STREAM, 1)
    assert len(target.seen()) == 2, "the first token, and the run's"


def test_a_run_returns_when_a_block_can_be_shared(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=BLOCK - 10, count=40)
    target.step()
    (sequence,) = target.scheduler.admission.running
    while sequence.kv.published == 0:
        output = target.first_run()
    assert output.reason is Reason.BLOCK
    assert sequence.computed == BLOCK


def test_a_run_returns_when_the_next_pass_may_need_a_block(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=BLOCK - 20, count=40)
    output = target.first_run()
    (sequence,) = target.scheduler.admission.running
    assert output.reason is Reason.BLOCK
    assert sequence.length + 1 + POLICY.max_rows > sequence.kv.room == BLOCK


def test_a_run_returns_when_it_has_to_be_booked(folder: Path) -> None:
    target = Target(folder, 3)
    target.submit(1, prompt=5, count=20)
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.ROOTS, 3)


def test_time_between_passes_is_host_time(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=30)
    output = target.first_run()
    assert 0 < target.scheduler.host_seconds < output.seconds


def test_what_needs_more_than_tokens_runs_pass_by_pass(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=6, logprobs=1)
    while not any(isinstance(m, Finished) for m in target.outbox):
        assert target.step() is None


def test_each_pass_of_a_run_is_a_span(folder: Path) -> None:
    target = Target(folder, MOST_ROOTS)
    target.submit(1, prompt=5, count=9)
    spans = list(target.first_run().spans())
    assert [(one.lane, one.rows, one.committed_rows) for one in spans] == 8 * [("target", 1, 1)]
    assert all(one.ended <= other.began for one, other in itertools.pairwise(spans))


def test_text_that_repeats_is_guessed_within_runs_and_stays(folder: Path) -> None:
    plainly, target = Target(folder, 0), Target(folder, MOST_ROOTS)
    target.scheduler.receive(
        SetPolicy(dataclasses.replace(POLICY, version=2, sources=(SourceKind.SUFFIX,))), 0.0
    )
    guesses = 0
    for each in (plainly, target):
        each.submit(1, prompt=120, count=150, speculate=each is target)
        while not any(isinstance(message, Finished) for message in each.outbox):
            output = each.step()
            guesses += sum(root.done.nodes for root in output.roots) if output else 0
    texts = [
        [token for m in one.outbox if isinstance(m, Tokens) for token in m.ids]
        for one in (plainly, target)
    ]
    assert texts[0] == texts[1]
    assert guesses > 0
    counters = target.scheduler.report().counters
    assert counters.source_rows == (0, counters.draft_rows, 0)
    assert counters.draft_rows > 0
