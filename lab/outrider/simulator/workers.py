"""Simulated workers: the product's schedulers on simulated engines, as `worker.launch` builds them.

Leaves which of them there are, and the links between them, to `cell`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_NODE_ROWS, PolicySettings
from outrider.simulator.clock import Clock
from outrider.simulator.description import LinkKind, SimulatedDraft, SimulatedTarget
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.kv import SimulatedKV
from outrider.simulator.language import Pair
from outrider.simulator.pace import Pace
from outrider.simulator.pass_times import PassTimes
from outrider.simulator.runners import SimulatedDraftRunner, SimulatedTargetRunner
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.batch import PassRows
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.launch.colocated import ColocatedScheduler, LoopbackLink
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import Room
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions

SendToDraft = Callable[[int, FromTarget], None]
SendToTarget = Callable[[int, Sequence[FromDraft]], None]
StartSelector = Callable[[StepCosts, PolicySettings, int, float], RowSelector]
"""Makes a selector without measurements, as `RowSelector.start`."""


@dataclass(slots=True, eq=False)
class TargetWorker:
    """One replica of the target."""

    number: int
    """Among all of the fleet."""
    scheduler: TargetScheduler
    engine: SimulatedEngine
    links: int = 0
    """To drafts, that are up."""


@dataclass(slots=True, eq=False)
class DraftWorker:
    """One life of a replica of the draft."""

    number: int
    scheduler: DraftScheduler
    engine: SimulatedEngine
    asked_at: float
    """When it was asked for."""
    room: Room
    links: dict[int, TargetWorker] = field(default_factory=dict)
    """Its targets, by the number of the link."""
    ready: bool = False
    stopping: bool = False
    ended_at: float | None = None
    """When its hardware was given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What all workers of a simulation are built from."""

    clock: Clock
    pair: Pair
    target: SimulatedTarget
    target_times: PassTimes
    draft: SimulatedDraft | None
    draft_times: PassTimes | None
    policy: PolicySettings
    seed: int
    start_selector: StartSelector

    def target_worker(
        self, number: int, send: SendToDraft, hear: Callable[[Any], None]
    ) -> TargetWorker:
        """Build a target, with its draft if that runs inside it.

        `send` takes messages for drafts, `hear` those for clients.
        """
        colocated = self.draft is not None and not self.draft.separate
        link = LoopbackLink()
        scheduler = self._target_scheduler(link.send_to_draft if colocated else send)
        runner = SimulatedTargetRunner(_kv_of(scheduler), self.pair)
        times = self.target_times

        def take(outbox: list[Any]) -> None:
            for message in outbox:
                hear(message)
            outbox.clear()

        def host(step: TargetBatch) -> float:
            return times.host(len(step.parts))

        if colocated:
            both = self._colocated(scheduler, runner, link)
            seconds, beside = self._colocated_seconds()
            engine = SimulatedEngine(self.clock, both, both, seconds, beside, take)
        else:
            engine = SimulatedEngine(self.clock, scheduler, runner, times.target, host, take)
        engine.pace = Pace(self.target.costs.variation, self.seed, 7, number).at
        return TargetWorker(number, scheduler, engine)

    def draft_worker(self, number: int, send: SendToTarget) -> DraftWorker:
        """Build a draft that is a worker of its own."""
        assert self.draft is not None
        assert self.draft_times is not None
        direct = self.draft.link.transport is LinkKind.SHARED_MEMORY
        scheduler = self._draft_scheduler(SendBuffer(send, is_direct=lambda link: direct))
        times = self.draft_times
        engine = SimulatedEngine(
            self.clock,
            scheduler,
            SimulatedDraftRunner(_kv_of(scheduler), self.pair),
            times.draft,
            lambda step: times.host(len(step.parts)),
        )
        engine.pace = Pace(self.draft.costs.variation, self.seed, 8, number).at
        room = Room(self.draft.max_running, self.draft.max_context)
        return DraftWorker(number, scheduler, engine, self.clock.now, room)

    @property
    def all_tokens(self) -> NDArray[np.bool_]:
        """Return [vocabulary] the token ids that a draft may propose: all."""
        return np.ones(self.pair.vocabulary, np.bool_)

    def _target_scheduler(self, send: SendToDraft) -> TargetScheduler:
        target, times = self.target, self.target_times
        selector = self.start_selector(times.costs, self.policy, target.row_capacity, times.host(1))
        return TargetScheduler(
            SimulatedKV(target.kv_tokens, target.max_context + MAX_NODE_ROWS),
            target.max_context,
            target.max_running,
            TargetSessions(send, selector),
            [],
            LogitsProcessors(self.pair.vocabulary),
        )

    def _draft_scheduler(self, send_buffer: SendBuffer) -> DraftScheduler:
        draft = self.draft
        assert draft is not None
        scheduler = DraftScheduler(
            SimulatedKV(draft.kv_tokens, draft.max_context + MAX_NODES),
            draft.max_context,
            draft.max_running,
            self.pair.vocabulary,
            send_buffer,
        )
        scheduler.allow(PassRows(draft.prefill_rows, draft.leaf_rows))
        return scheduler

    def _colocated(
        self, scheduler: TargetScheduler, runner: SimulatedTargetRunner, link: LoopbackLink
    ) -> ColocatedScheduler:
        draft = self._draft_scheduler(SendBuffer(link.send_to_target, coalesce=False))
        draft_runner = SimulatedDraftRunner(_kv_of(draft), self.pair)
        assert self.draft_times is not None
        costs = self.draft_times.costs
        tokens = TargetTokens(self.all_tokens)
        return ColocatedScheduler(scheduler, runner, draft, draft_runner, link, tokens, costs)

    def _colocated_seconds(self) -> tuple[Callable[[Any], float], Callable[[Any], float]]:
        """Return the seconds of passes of both roles, and those beside them."""
        target, draft = self.target_times, self.draft_times
        assert draft is not None

        def seconds(step: Any) -> float:
            return target.target(step) if isinstance(step, TargetBatch) else draft.draft(step)

        def beside(step: Any) -> float:
            times = target if isinstance(step, TargetBatch) else draft
            return times.host(len(step.parts))

        return seconds, beside


def _kv_of(scheduler: TargetScheduler | DraftScheduler) -> SimulatedKV:
    kv_cache = scheduler.kv_cache
    assert isinstance(kv_cache, SimulatedKV)
    return kv_cache
