"""The loops that `bench.host_tree` times: real schedulers and runners of a target, of a draft, and
of both in one process.

Every stage of a step is timed by the wall clock and by the thread's own processor time: what lies
between the two is a stall, in which another thread held the interpreter lock or the processor.
"""

import abc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench.host_tree.models import (
    OUTPUTS,
    VOCABULARY,
    FakeModel,
    Pass,
    PassClock,
    draft_logits,
    stamp,
    target_logits,
)
from bench.host_tree.peer import (
    DRAFT_SECONDS,
    NODES_AHEAD,
    PROMPT,
    TARGET_SECONDS,
    Committer,
    Grower,
)
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache, KVCache
from outrider.worker.launch.colocated import ColocatedScheduler, LoopbackLink
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import FromPeer, LinkUp, Submit
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions

CONTEXT = 2048
LONGEST = CONTEXT + 8 * NODES_AHEAD
"""Slots of a sequence and its nodes."""
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


@dataclass(frozen=True, slots=True)
class Passes:
    """What runs the passes of one role."""

    runner: Any
    clock: PassClock
    """Time of the passes themselves."""
    kv_cache: KVCache


def target_passes(run_pass: Pass) -> Passes:
    """Return a target's passes on processors."""
    model = FakeModel(VOCABULARY, target_logits, run_pass)
    return Passes(TargetRunner(model, VOCABULARY), model.clock, kv_cache_of(TARGET_SHAPE))


def draft_passes(run_pass: Pass) -> Passes:
    """Return a draft's passes on processors."""
    model = FakeModel(OUTPUTS, draft_logits, run_pass)
    runner = DraftRunner(model, tuple(range(OUTPUTS)), VOCABULARY)
    return Passes(runner, model.clock, kv_cache_of(DRAFT_SHAPE))


class TimedLoop(abc.ABC):
    """One role's scheduler and runner; the other side answers between two steps."""

    def __init__(self, scheduler: Any, passes: Passes) -> None:
        self.laps = StepTimings()
        self.sent: list[Any] = []
        """What the scheduler has sent and the other side has not heard."""
        self._scheduler = scheduler
        self._runner = passes.runner
        self._clock = passes.clock

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
        watch.lap(without=self._clock.take())
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

    def __init__(self, messages: int, passes: Passes) -> None:
        """`messages`: in which growth comes for each step; 0: there is no draft."""
        scheduler = target_scheduler(passes, lambda link, message: self.sent.append(message))
        super().__init__(scheduler, passes)
        if messages:
            scheduler.receive(link_up(), time.monotonic())
        self._has_draft = messages > 0
        self._grower = Grower(max(1, messages))
        self._requests = 0

    def answers(self, sent: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Grow the tree to its limit after each commit."""
        return [answer for message in sent for answer in self._grower.answer(message)]

    def nodes(self, batch: Any) -> int:
        """Return the mirror's, if it is nearly full; 1 if there is none."""
        if not self._has_draft:
            return 1
        live = sum(part.live for part in batch.parts)
        return live if live >= 0.9 * NODES_AHEAD else 0

    def rest(self) -> None:
        """Submit the next request once the last one has ended."""
        if not self._scheduler.admission.running:
            self._requests += 1
            self._scheduler.receive(request(self._requests), time.monotonic())


class DraftLoop(TimedLoop):
    """A draft that grows the tree of one session after another."""

    def __init__(self, passes: Passes) -> None:
        scheduler = draft_scheduler(passes, lambda link, messages: self.sent.extend(messages))
        super().__init__(scheduler, passes)
        scheduler.receive(link_up(), time.monotonic())
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


class ColocatedLoop(TimedLoop):
    """A target and its draft that take turns; each pass of either is a step."""

    def __init__(self, target: Passes, draft: Passes) -> None:
        """Both passes have the target's clock."""
        link = LoopbackLink()
        scheduler = ColocatedScheduler(
            target_scheduler(target, link.send_to_draft),
            target.runner,
            draft_scheduler(draft, link.send_to_target),
            draft.runner,
            link,
            TargetTokens(np.ones(VOCABULARY, np.bool_)),
            costs(DRAFT_SECONDS),
        )
        super().__init__(scheduler, replace(target, runner=scheduler))
        self._requests = 0

    def answers(self, sent: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Answer nothing: the other side is in the loop."""
        return []

    def nodes(self, batch: Any) -> int:
        """Return the nodes that wait for the target, or that its step has; 1 where there are none:
        every step counts."""
        return max(1, sum(len(s.tree) for s in self._scheduler.draft.sessions.live.values()))

    def rest(self) -> None:
        """Submit the next request once the last one has ended."""
        if not self._scheduler.target.admission.running:
            self._requests += 1
            self._scheduler.receive(request(self._requests), time.monotonic())


def target_scheduler(passes: Passes, send: Callable[[int, FromTarget], None]) -> TargetScheduler:
    """Return the scheduler of a target of one request."""
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
    return TargetScheduler(
        passes.kv_cache,
        CONTEXT,
        1,
        TargetSessions(send, selector),
        [],
        LogitsProcessors(VOCABULARY),
    )


def draft_scheduler(
    passes: Passes, send: Callable[[int, Sequence[FromDraft]], None]
) -> DraftScheduler:
    """Return the scheduler of a draft of one session."""
    return DraftScheduler(passes.kv_cache, CONTEXT, 1, VOCABULARY, SendBuffer(send))


def link_up() -> LinkUp:
    """Return the message that the other side is there."""
    return LinkUp(LINK, np.ones(VOCABULARY, np.bool_))


def request(number: int) -> Submit:
    """Return a request of as many tokens as the context holds."""
    tokens, now = CONTEXT - len(PROMPT) - NODES_AHEAD, time.monotonic()
    return Submit(number, PROMPT, SamplingParams(), tokens, (), True, now)


def kv_cache_of(shape: tuple[int, int, int]) -> HostKVCache:
    """Return room for one sequence and its nodes."""
    return HostKVCache(shape, blocks_for(LONGEST), LONGEST, prefix_cache=False)


def costs(seconds: float) -> StepCosts:
    """Return step costs of a model whose rows are cheap."""
    rows = (1, MAX_ROWS + 1, NODES_AHEAD)
    line = seconds * (1 + ROW_SHARE * (np.array(rows) - 1.0))
    return StepCosts.smoothed(rows, (64, 1024), np.array([[line, 1.1 * line]]))
