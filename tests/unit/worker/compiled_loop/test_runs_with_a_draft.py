"""Runs of a serial draft's roots: the same as steps in Python, and back for each reason.

Waits, costs and scales are forced, so that what runs depends on no time.
"""

import itertools
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.contract.settings import MAX_DEPTH, PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.compiled_loop.loop import MOST_GROWTHS, MOST_ROOTS, Reason
from outrider.worker.compiled_loop.run import RootOutput, RootPlanner
from outrider.worker.compiled_loop.runner import CompiledDraft, CompiledTarget
from outrider.worker.draft.batch import LEAF_ROWS, PREFILL_ROWS
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.serial import LINK, LoopbackLink, SerialScheduler
from outrider.worker.launch.warm_up_roots import warm_up_roots
from outrider.worker.messages import Cancel, Finish, Finished, SetPolicy, Submit, Tokens
from outrider.worker.model.llama import Llama
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.speculation.wait import Wait, WaitPolicy, WaitPolicyByBatch, WantedGrowths
from outrider.worker.target import sessions
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.pairwise import pairwise
from tests.tiny_models import write_tiny
from tests.unit.worker.fakes import FlatCosts

VOCABULARY, DRAFT_VOCABULARY = 500, 490
"""Fewer than the models' columns: the rest is padding."""
CONTEXT, DRAFT_CONTEXT = 300, 260
ROWS = 33
POLICY = PolicySettings(version=1, off_below_percent=0, max_rows=8, sources=(SourceKind.DRAFT,))
DRAFT_AND_TEXT = SourceKind.DRAFT, SourceKind.SUFFIX
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9, seed=3),
    SamplingParams(repetition_penalty=1.3),
)
NEVER, ALWAYS = math.inf, 0.0
MOST_STEPS = 5000
TIMED = ("second", "latenc", "gain", "kv_slots_used")
"""In the names of counters that depend on time, and of the draft's blocks, of which a run takes one
early."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def any_time_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DraftSession, "has_long_link", False)
    monkeypatch.setattr(sessions, "TOGETHER_SECONDS", 0.0)


class ForcedWaits(WaitPolicy):
    """Waits for so many growths at roots without rows and at those with, whatever they bring."""

    growths: ClassVar = (2, 1)
    weighed: ClassVar[list[tuple[bool, int, float]]] = []

    @property
    def wanted(self) -> WantedGrowths:
        return WantedGrowths(*self.growths, MOST_ROOTS)

    def should_wait(
        self, roots: list[tuple[bool, int]], value: float, rate: float, since: float, now: float
    ) -> bool:
        if not any(growths < self.growths[supplied] for supplied, growths in roots):
            self.stop(value, rate, now)
            return False
        if self._wait is None:
            self._wait = Wait(now, math.inf, value, value, rate, 0.0)
        return True

    def saw_value(self, supplied: bool, growths: int, value: float) -> None:
        self.weighed.append((supplied, growths, round(value, 4)))

    def wants_value(self, supplied: bool) -> bool:
        return False  # a run looks at no tree twice


class FreeRows(FlatCosts):
    """Node rows cost nothing, so each that could be reached runs, whatever the rate."""

    def curve(self, most: int, *rest: Any) -> NDArray[np.float64]:
        return np.full(most + 1, self.seconds(1, 1))


def model_of(folder: Path, blocks: int, context: int, noise: float = 0.0) -> Llama:
    """Return the tiny model; one with noise in its weights agrees with it now and then."""
    config = read_config(folder)
    weights = load_file(folder / "model.safetensors")
    random = np.random.default_rng(0)
    for name, matrix in weights.items():
        shift = noise * matrix.std() * random.standard_normal(matrix.shape)
        weights[name] = (matrix + shift).astype(np.float32)
    kv_cache = HostKVCache(config.kv_shape, blocks, context + ROWS)
    return Llama(config, weights, NumericPath.FP32, kv_cache, PREFILL_ROWS + LEAF_ROWS)


@dataclass
class Serial:
    """A target and its draft on tiny models; `runs`: roots go on in compiled code."""

    folder: Path
    runs: bool
    growths: tuple[int, int] = (2, 1)
    outbox: list[Any] = field(default_factory=list)
    weighed: list[tuple[bool, int, float]] = field(default_factory=list)
    """Whether a root was in the mirror, its growths, and what its tree was worth."""
    arrived: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def __post_init__(self) -> None:
        self.model = model_of(self.folder, 12, CONTEXT)
        self.draft_model = model_of(self.folder, 12, CONTEXT, noise=0.1)
        waits = type("Waits", (ForcedWaits,), {"growths": self.growths, "weighed": self.weighed})
        selector = RowSelector.start(
            FreeRows(),  # type: ignore[arg-type]
            POLICY,
            ROWS,
            0.0,
            WaitPolicyByBatch(waits),
        )
        selector.scale = ErrorScale(rate=0.0)
        selector.switch = Switch(0.0, SwitchSettings(off_below=0.0, check_every_seconds=math.inf))
        link = LoopbackLink()
        target = TargetScheduler(
            self.model.kv_cache,
            CONTEXT,
            2,
            TargetSessions(link.send_to_draft, selector),
            self.outbox,
            LogitsProcessors(VOCABULARY),
        )
        draft = DraftScheduler(
            self.draft_model.kv_cache,
            DRAFT_CONTEXT,
            2,
            VOCABULARY,
            SendBuffer(link.send_to_target, coalesce=False),
        )
        target_runner = TargetRunner(self.model, VOCABULARY)
        draft_runner = DraftRunner(self.draft_model, tuple(range(DRAFT_VOCABULARY)), VOCABULARY)
        allowed = np.ones(VOCABULARY, np.bool_)
        runner = CompiledTarget(target_runner, self.model, VOCABULARY, self.arrived)
        self.scheduler = SerialScheduler(target, runner, draft, draft_runner, link, allowed)
        if self.runs:
            self.scheduler.runs = RootPlanner(target, draft, LINK)
            runner.draft = CompiledDraft(
                draft_runner, self.draft_model, draft.rows, VOCABULARY, allowed
            )

    def submit(self, request: int, prompt: int, count: int, **changes: Any) -> None:
        """Ask for `count` tokens after a prompt of so many."""
        fields: dict[str, Any] = {
            "request": request,
            "prompt": np.arange(prompt, dtype=np.int32) % 97,
            "sampling": SAMPLINGS[0],
            "max_tokens": count,
            "end_ids": (),
            "speculate": True,
            "arrived": 0.0,
            "stream_seconds": NEVER,
        }
        self.scheduler.receive(Submit(**(fields | changes)), time.monotonic())

    def step(self) -> RootOutput | None:
        """Run one step; return its output if it was a run of roots."""
        step = self.scheduler.next(time.monotonic())
        if step is None:
            return None
        output = self.scheduler.run(step)
        self.scheduler.settle(step, output, time.monotonic())
        return output if isinstance(output, RootOutput) else None

    def first_run(self, steps: int = 40) -> RootOutput:
        """Step until there was a run; return its output."""
        for _ in range(steps):
            if (output := self.step()) is not None:
                return output
        raise AssertionError("there was no run")

    def run_to_end(self) -> list[RootOutput]:
        """Step until nothing is left to do; return the outputs of runs."""
        admission = self.scheduler.target.admission
        outputs: list[RootOutput] = []
        for _ in range(MOST_STEPS):
            if not admission.running and not admission.waiting:
                return outputs
            if (output := self.step()) is not None:
                outputs.append(output)
        raise AssertionError(f"requests are left after {MOST_STEPS} steps")

    @property
    def passes(self) -> int:
        """Of the target, so far."""
        return self.scheduler.target.stats.counters.steps

    def state(self) -> dict[str, Any]:
        """Return all that a run must leave as steps do, without times."""
        self.scheduler.deliver(time.monotonic())  # a step's commits are still on their way
        target, draft = self.scheduler.target, self.scheduler.draft
        reports = target.report().counters, draft.report().counters
        names = [n for n in reports[0].__slots__ if not any(word in n for word in TIMED)]
        return {
            "messages": self.seen(),
            "latencies": sum(target.sessions.latencies.counts),
            "weighed": self.weighed,
            **{
                f"{at} {name}": getattr(one, name)
                for at, one in enumerate(reports)
                for name in names
            },
            "kv": self.model.kv_cache.usage,
            "running": [sequence_state(one) for one in target.admission.running],
            "sessions": [session_state(one) for one in draft.sessions.live.values()],
        }

    def seen(self) -> list[tuple[Any, ...]]:
        """Return the server's messages so far, without times."""
        return [
            (m.request, m.finish, m.usage, m.detail)
            if isinstance(m, Finished)
            else (m.request, m.ids, m.passes)
            for m in self.outbox
            if isinstance(m, Finished | Tokens)
        ]

    def finish(self, request: int) -> Finish:
        """Return how an answer ended."""
        ends = [m for m in self.outbox if isinstance(m, Finished) and m.request == request]
        return ends[0].finish

    def text(self, request: int = 1) -> list[int]:
        """Return the tokens of an answer so far."""
        sent = [m for m in self.outbox if isinstance(m, Tokens) and m.request == request]
        return [token for message in sent for token in message.ids]


def sequence_state(sequence: Any) -> tuple[Any, ...]:
    mirror = sequence.mirror
    return (
        sequence.submit.request,
        sequence.committed().tolist(),
        (sequence.computed, sequence.growths, sequence.supplied, sequence.unsent),
        (sequence.kv.table.tolist(), sequence.kv.published),
        (mirror.root_position, mirror.last_id, mirror.acknowledged),
        [column.tolist() for column in (mirror.parent, mirror.token, mirror.first_id)],
        sequence.session and (sequence.session.told, sequence.session.nodes_ahead),
    )


def session_state(session: DraftSession) -> tuple[Any, ...]:
    nodes, candidates = session.tree.nodes, session.tree.candidates
    return (
        session.tokens[: session.length].tolist(),
        (session.growths, session.tree.cached, session.tree.root_position),
        [column.tolist() for column in (nodes.parent, nodes.token, nodes.slot, nodes.id)],
        sorted(zip(candidates.parent.tolist(), candidates.token.tolist(), strict=True)),
    )


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Fail with the part in which two states differ."""
    for name, part in one.items():
        assert part == other[name], name


class Histories(RuleBasedStateMachine):
    """Whatever happens, two pairs write the same: one steps pass by pass, the other in runs."""

    folder: Path
    growths = (2, 1)

    def __init__(self) -> None:
        super().__init__()
        self.steps = Serial(self.folder, runs=False, growths=self.growths)
        self.runs = Serial(self.folder, runs=True, growths=self.growths)
        self.requests = 0

    def both(self, message: Any) -> None:
        for pair in (self.steps, self.runs):
            pair.scheduler.receive(message, time.monotonic())

    @rule(
        prompt=st.integers(1, 140),
        count=st.integers(1, 90),
        sampling=st.sampled_from(SAMPLINGS),
        ends=st.lists(st.integers(0, VOCABULARY - 1), max_size=40),
        speculate=st.sampled_from((True, True, True, False)),
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
        for pair in (self.steps, self.runs):
            pair.submit(
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

    @rule(
        speculate=st.sampled_from((True, True, False)),
        max_rows=st.integers(1, 16),
        sources=st.sampled_from(((SourceKind.DRAFT,), DRAFT_AND_TEXT, SOURCES)),
    )
    def set_policy(self, speculate: bool, max_rows: int, sources: tuple[SourceKind, ...]) -> None:
        policy = PolicySettings(
            version=1, off_below_percent=0, speculate=speculate, max_rows=max_rows, sources=sources
        )
        for pair in (self.steps, self.runs):
            scheduler = pair.scheduler
            scheduler.receive(SetPolicy(policy), time.monotonic())
            switch = Switch(0.0, SwitchSettings(off_below=0.0, check_every_seconds=math.inf))
            scheduler.target.row_selector.switch = switch

    @rule(steps=st.integers(1, 8))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.runs.step()
            self.steps.step()

    @invariant()
    def both_write_the_same(self) -> None:
        for request in range(1, self.requests + 1):
            one, other = self.runs.text(request), self.steps.text(request)
            shorter = min(len(one), len(other))
            assert one[:shorter] == other[:shorter]

    def teardown(self) -> None:
        for pair in (self.steps, self.runs):
            pair.run_to_end()
        self.both_write_the_same()
        for request in range(1, self.requests + 1):
            ends = [pair.finish(request) for pair in (self.steps, self.runs)]
            if Finish.CANCELLED not in ends:
                assert ends[0] == ends[1]
                assert self.runs.text(request) == self.steps.text(request)


def test_any_history_of_runs_writes_what_steps_write(folder: Path) -> None:
    Histories.folder = folder
    bounds = settings(max_examples=8, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Histories, settings=bounds)


@pytest.mark.parametrize(
    ("growths", "sampling", "sources"),
    pairwise(
        growths=[(1, 0), (1, 1), (2, 1), (MOST_GROWTHS, 2)],
        sampling=SAMPLINGS[:2],
        sources=[POLICY.sources, DRAFT_AND_TEXT],
    ),
)
def test_runs_leave_the_state_that_steps_leave(
    folder: Path,
    growths: tuple[int, int],
    sampling: SamplingParams,
    sources: tuple[SourceKind, ...],
) -> None:
    steps, runs = (Serial(folder, in_runs, growths) for in_runs in (False, True))
    for pair in (steps, runs):
        policy = replace(POLICY, sources=sources)
        pair.scheduler.target.row_selector.local.decide(policy, 0.0)
        pair.submit(1, prompt=20, count=200, sampling=sampling)
    roots = 0
    while runs.scheduler.target.admission.running or runs.scheduler.target.admission.waiting:
        output = runs.step()
        roots += 0 if output is None else len(output.roots)
        for _ in range(MOST_STEPS):
            if steps.passes == runs.passes:
                break
            steps.step()
        if output is not None:
            assert_same(runs.state(), steps.state())
    assert roots > 20
    assert_same(runs.state(), steps.state())
    if sources == DRAFT_AND_TEXT:  # a draft alone may never fall in
        assert {supplied for supplied, _, _ in runs.weighed} == {True, False}


def test_runs_show_the_tree_of_their_last_root(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=20, count=100, shows_tree=True, stream_seconds=0.0)
    runs = pair.run_to_end()
    trees = [m.tree for m in pair.outbox if isinstance(m, Tokens) and m.tree is not None]
    assert runs
    assert trees
    text = pair.text()
    for tree in trees:
        written = [*(tree.tokens[row] for row in (0, *tree.accepted)), tree.following]
        places = range(len(text) - len(written) + 1)
        assert any(text[at : at + len(written)] == written for at in places)


def test_a_run_returns_when_the_answer_is_long_enough(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=12)
    assert pair.run_to_end()[-1].reason == Reason.END
    assert len(pair.text()) == 12
    assert pair.seen()[-1][1] is Finish.LENGTH


def test_a_run_returns_at_an_end_token(folder: Path) -> None:
    known = Serial(folder, True)
    known.submit(1, prompt=5, count=20)
    known.run_to_end()
    end = known.text()[9]
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=20, end_ids=(end,))
    assert pair.run_to_end()[-1].reason == Reason.END
    assert pair.text() == known.text()[: known.text().index(end) + 1]
    assert pair.seen()[-1][1] is Finish.STOP


def test_a_run_returns_where_no_logit_is_a_number(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60)
    pair.first_run()
    pair.model.kv_cache.v[:] = np.nan
    output = pair.first_run()
    assert (output.reason, len(output.roots)) == (Reason.END, 1)
    assert pair.seen()[-1][1] is Finish.FAILED


def test_a_run_returns_for_a_message(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60)
    pair.arrived[0] = 1
    output = pair.first_run()
    assert (output.reason, len(output.roots)) == (Reason.MESSAGE, 1)


def test_a_run_returns_when_tokens_are_due(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60, stream_seconds=ALWAYS)
    before = len(pair.seen())
    output = pair.first_run()
    assert (output.reason, len(output.roots)) == (Reason.STREAM, 1)
    assert len(pair.seen()) > before


def test_a_run_returns_for_a_block_for_the_draft_and_when_it_has_to_be_booked(folder: Path) -> None:
    pair = Serial(folder, True)
    assert pair.scheduler.runs is not None
    pair.scheduler.runs.most = 16
    pair.submit(1, prompt=BLOCK - 20, count=200)
    reasons = [output.reason for output in pair.run_to_end()]
    assert {Reason.BLOCK, Reason.ROOTS, Reason.DRAFT} <= set(reasons)


def test_a_run_ends_before_the_drafts_context_and_the_answer_goes_on(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=DRAFT_CONTEXT - 90, count=110)
    lengths = []
    admission = pair.scheduler.target.admission
    while admission.running or admission.waiting:
        output = pair.step()
        if output is not None and output.reason == Reason.DRAFT:
            lengths += [sequence.length for sequence in admission.running]
    assert max(lengths) + MAX_DEPTH + 1 < DRAFT_CONTEXT + MAX_DEPTH + 1
    assert max(lengths) + MAX_DEPTH + 1 >= DRAFT_CONTEXT, "it ended for that reason"
    assert len(pair.text()) == 110


@pytest.mark.parametrize("changes", [{"logprobs": 1}, {"sampling": SAMPLINGS[2]}])
def test_what_needs_more_than_tokens_runs_step_by_step(
    folder: Path, changes: dict[str, Any]
) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=40, **changes)
    assert pair.run_to_end() == []
    assert len(pair.text()) == 40


def test_moves_that_no_pass_has_made_wait_for_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ValueError("no run")

    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60)
    pair.first_run()
    cache = pair.model.kv_cache
    table = pair.scheduler.target.admission.running[0].kv
    cache.move(table, np.array([9], np.int32), np.array([8], np.int32))
    monkeypatch.setattr("outrider.worker.compiled_loop.runner.run_roots", fail)
    with pytest.raises(ValueError, match="no run"):
        pair.first_run()
    assert cache.waiting_moves > 0


def test_roots_are_compiled_before_a_request_needs_them(folder: Path) -> None:
    pair = Serial(folder, True)
    assert warm_up_roots(pair.scheduler)
    assert pair.model.kv_cache.used == 0
    assert pair.draft_model.kv_cache.used == 0


def test_time_between_passes_is_host_time(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60)
    output = pair.first_run()
    assert 0 < pair.scheduler.host_seconds < output.seconds


def test_a_timeline_shows_the_passes_of_both(folder: Path) -> None:
    pair = Serial(folder, True)
    pair.submit(1, prompt=5, count=60)
    output = pair.first_run()
    spans = list(output.spans())
    assert [span.lane for span in spans].count("target") == len(output.roots)
    assert [span.lane for span in spans].count("draft") == sum(
        len(root.draft_passes) for root in output.roots
    )
    assert all(one.ended <= other.began for one, other in itertools.pairwise(spans))
    root = output.roots[-1]
    assert spans[-1].rows == 1 + root.done.nodes
    assert spans[-1].committed_rows == len(root.done.tokens)


def test_a_root_that_was_worth_more_growth_is_waited_for_longer_the_next_time() -> None:
    policy = WaitPolicy.serial()
    policy.trials = 0
    policy.fresh.value[:3] = 0.0, 1.0, 2.0
    assert policy.should_wait([(False, 0)], 0.0, 1.0, 0.0, 0.0)
    assert policy.should_wait([(False, 1)], 1.0, 1.0, 0.001, 0.001)
    policy.stop(1.0, 1.0, 0.001)
    assert policy.wanted[:2] == (2, 0)
    assert policy.ongoing is None


def test_no_run_is_planned_while_waits_are_tried() -> None:
    assert WaitPolicy().wanted.roots == 0, "growth comes by itself"
    policy = WaitPolicy.serial()
    assert policy.wanted.roots == 0
    policy.trials = 0
    assert policy.wanted.roots == 15
    policy.spare = 0.0
    assert policy.wanted.roots == 0
