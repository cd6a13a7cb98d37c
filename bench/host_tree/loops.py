"""The loops that `bench.host_tree` times: a target's and a draft's real schedulers and runners.

Every stage of a step is timed by the wall clock and by the thread's own processor time: what lies
between the two is a stall, in which another thread held the interpreter lock or the processor.
"""

import abc
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.host_tree.models import (
    OUTPUTS,
    VOCABULARY,
    FakeModel,
    Pass,
    draft_logits,
    stamp,
    target_logits,
)
from bench.host_tree.peer import NODES_AHEAD, PROMPT, TARGET_SECONDS, Committer, Grower
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.messages import FromPeer, LinkUp, Submit
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions

CONTEXT = 2048
MAX_ROWS = 16
DRAFT_AHEAD = NODES_AHEAD + NODES_AHEAD // 2
"""So that a draft runs passes while its tree has about 64 nodes."""
ROW_SHARE = 0.02
"""Share of a pass's time that one more row costs."""
TARGET_SHAPE, DRAFT_SHAPE = (30, 3, 64), (3, 3, 64)
"""Layers, key heads and the numbers of one, as the demo's models have them."""
PASSES = 6
"""Passes of a draft between two commits."""
STAGES = ("receive", "next", "sample", "settle")
LINK = 1


class Stopwatch:
    """Times of a step's stages, in nanoseconds: [stages][wall clock, processor time]."""

    def __init__(self) -> None:
        self.laps: list[tuple[int, int]] = []
        self._last = stamp()

    def lap(self, without: tuple[int, int] = (0, 0)) -> None:
        """End a stage; `without` is no part of it."""
        now, before = stamp(), self._last
        self.laps.append((now[0] - before[0] - without[0], now[1] - before[1] - without[1]))
        self._last = now

    def skip(self) -> None:
        """Leave out the time since the last stage."""
        self._last = stamp()


@dataclass(slots=True)
class StepTimings:
    """The steps that count."""

    stages: list[list[tuple[int, int]]] = field(default_factory=list)
    """[steps][stages] as a `Stopwatch` has them."""
    nodes: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    """Messages that came before each step."""


class TimedLoop(abc.ABC):
    """One role's scheduler and runner; the other side answers between two steps."""

    def __init__(self, model: FakeModel, scheduler: Any, runner: Any) -> None:
        self.laps = StepTimings()
        self.sent: list[Any] = []
        """What the scheduler has sent and the other side has not heard."""
        self._model = model
        self._scheduler = scheduler
        self._runner = runner
        up = LinkUp(LINK, np.ones(VOCABULARY, np.bool_))
        scheduler.receive(up, time.monotonic())

    def step(self) -> None:
        """Let the other side answer, and run one step."""
        self.run(self.arrived())

    def run(self, arrived: Sequence[FromPeer]) -> None:
        """Run one step as the engine does; count it if its tree is as full as it should be."""
        watch = Stopwatch()
        for message in arrived:
            self._scheduler.receive(message, time.monotonic())
        watch.lap()
        batch = self._scheduler.next(time.monotonic())
        watch.lap()
        if batch is None:
            self.rest()
            return
        nodes = self.nodes(batch)
        watch.skip()
        output = self._runner.run(batch)
        watch.lap(without=self._model.nanoseconds)
        self._scheduler.settle(batch, output, time.monotonic())
        watch.lap()
        self._scheduler.outbox.clear()
        if nodes:
            self.laps.stages.append(watch.laps)
            self.laps.nodes.append(nodes)
            self.laps.messages.append(len(arrived))

    def arrived(self) -> list[FromPeer]:
        """Let the other side answer what was sent."""
        unsent, self.sent = self.sent, []
        return [FromPeer(LINK, tuple(answer)) for answer in self.answers(unsent)]

    @abc.abstractmethod
    def answers(self, sent: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Return messages of the other side, those that travel together in one."""

    @abc.abstractmethod
    def nodes(self, batch: Any) -> int:
        """Return the nodes of the tree that a batch is of; 0 if it does not count."""

    @abc.abstractmethod
    def rest(self) -> None:
        """Do what lets the loop go on where there is nothing to run."""


class TargetLoop(TimedLoop):
    """A target that answers one request after another."""

    def __init__(self, messages: int, run_pass: Pass) -> None:
        """`messages`: in which growth comes for each step."""
        selector = RowSelector.start(
            costs(TARGET_SECONDS),
            PolicySettings(
                nodes_ahead=NODES_AHEAD,
                max_rows=MAX_ROWS,
                off_below_percent=0,
                sources=(SourceKind.DRAFT,),
            ),
            NODES_AHEAD,
        )
        model = FakeModel(VOCABULARY, target_logits, run_pass)
        scheduler = TargetScheduler(
            kv_cache_of(TARGET_SHAPE),
            CONTEXT,
            1,
            TargetSessions(lambda link, message: self.sent.append(message), selector),
            [],
            LogitsProcessors(VOCABULARY),
        )
        super().__init__(model, scheduler, TargetRunner(model, VOCABULARY))
        self._grower = Grower(messages)
        self._requests = 0

    def answers(self, sent: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Grow the tree to its limit after each commit."""
        return [answer for message in sent for answer in self._grower.answer(message)]

    def nodes(self, batch: Any) -> int:
        """Return the mirror's, if it is nearly full."""
        live = sum(part.live for part in batch.parts)
        return live if live >= 0.9 * NODES_AHEAD else 0

    def rest(self) -> None:
        """Submit the next request once the last one has ended."""
        if self._scheduler.admission.running:
            return
        self._requests += 1
        tokens, now = CONTEXT - len(PROMPT) - NODES_AHEAD, time.monotonic()
        submit = Submit(self._requests, PROMPT, SamplingParams(), tokens, (), True, now)
        self._scheduler.receive(submit, now)


class DraftLoop(TimedLoop):
    """A draft that grows the tree of one session after another."""

    def __init__(self, run_pass: Pass) -> None:
        model = FakeModel(OUTPUTS, draft_logits, run_pass)
        scheduler = DraftScheduler(
            kv_cache_of(DRAFT_SHAPE),
            CONTEXT,
            1,
            VOCABULARY,
            SendBuffer(lambda link, messages: self.sent.extend(messages)),
        )
        runner = DraftRunner(model, tuple(range(OUTPUTS)), VOCABULARY)
        super().__init__(model, scheduler, runner)
        self._committer = Committer(DRAFT_AHEAD)
        self._passes = 0
        self._open = False

    def answers(self, sent: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Commit once in every few passes."""
        self._committer.hear(sent)
        self._passes += 1
        if not self._open:
            self._open = True
            return [[self._committer.open()]]
        if self._passes % PASSES:
            return []
        return [[message] for message in self._committer.commit()]

    def nodes(self, batch: Any) -> int:
        """Return the tree's, if it is as full as a target's is."""
        live = sum(len(part.session.tree) for part in batch.parts)
        grows = not any(part.session.needs_prefill for part in batch.parts)
        return live if grows and live >= 0.5 * NODES_AHEAD else 0

    def rest(self) -> None:
        """Go on: the other side commits soon."""


def kv_cache_of(shape: tuple[int, int, int]) -> HostKVCache:
    """Return room for one sequence and its nodes."""
    longest = CONTEXT + 8 * NODES_AHEAD
    return HostKVCache(shape, blocks_for(longest), longest, prefix_cache=False)


def costs(seconds: float) -> StepCosts:
    """Return step costs of a model whose rows are cheap."""
    rows = (1, MAX_ROWS + 1, NODES_AHEAD)
    line = seconds * (1 + ROW_SHARE * (np.array(rows) - 1.0))
    return StepCosts.smoothed(rows, (64, 1024), np.array([[line, 1.1 * line]]))
