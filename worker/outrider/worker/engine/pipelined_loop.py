"""The engine's loop of a pipelined target, whose passes are run by its stages.

Driven by events: messages of the server, growth of drafts, results of the last stage, a group of
stages that is lost or up again. Nobody waits for anybody. Leaves requests to a `Scheduler`, the
stages to a `StageGroup`, bytes to a `Transport`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from outrider.contract.state import StageLayers
from outrider.worker.engine.loop import REPORT_SECONDS, Transport
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.engine.stage_group import Facts, StageGroup
from outrider.worker.errors import StageLost
from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.messages import (
    Alive,
    AskAlive,
    AskTimeline,
    EngineReport,
    StageGroupState,
    Timeline,
)
from outrider.worker.pipeline.records import Record, Results
from outrider.worker.pipeline.wire.hello import StageFacts

logger = logging.getLogger(__name__)


class StageNews:
    """A message of a process to itself: its group of stages has news."""


STAGE_NEWS = StageNews()


class Scheduler(Protocol):
    """Decides what is sent to the stages, and what their results mean."""

    outbox: list[Any]

    @property
    def idle(self) -> bool:
        """True if no request runs."""

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server or of a peer."""

    def settle(self, results: Results, now: float) -> None:
        """Commit what the results of a segment decide."""

    def stream(self, now: float) -> None:
        """Put what clients are due into the outbox."""

    def expire(self, now: float, missing: str) -> None:
        """End requests that have waited for too long; `missing`: why no stage runs them, if so."""

    def fill(self, now: float) -> Iterable[Record]:
        """Return the records that are to leave now."""

    def begin_group(self, pool: BlockPool, rows: int, now: float) -> None:
        """Begin with stages that know nothing, and take segments of so many rows."""

    def lose_group(self, reason: str, now: float) -> None:
        """Take all requests back; `reason`: why their stages are lost."""

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a request has waited for too long; None: no limit."""

    def report(self) -> EngineReport:
        """Return the counters so far."""

    def timeline(self) -> Timeline:
        """Return what the stages computed lately."""


class PipelinedEngine:
    """The engine of a pipelined target."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: StageGroup,
        transport: Transport,
        pool_of: Callable[[Facts], BlockPool],
        early: Sequence[Any] = (),
    ) -> None:
        """`pool_of` returns the empty KV of stages; `early`: messages that came before."""
        self.scheduler = scheduler
        self.group = group
        self.transport = transport
        self._pool_of = pool_of
        self._early = early
        self._reported_at = 0.0
        self._changed = True
        self._told: StageGroupState | None = None
        self._stages = tuple(map(layers_of, group.facts))
        """Of the last group that was up."""

    def run(self) -> None:
        """Go on until the server is gone."""
        try:
            while True:
                self.step()
        except ChannelClosed:
            logger.info("the server has exited; the engine stops")
        finally:
            self.group.close()

    def step(self) -> None:
        """Handle all that has come, send what follows, and sleep until there is more."""
        self._receive()
        self._settle()
        now = time.monotonic()
        self._follow_group(now)
        self.scheduler.expire(now, "" if self.group.up else self.group.detail)
        if self.group.up:
            for record in self.scheduler.fill(now):
                self.group.send(record)
                self._changed = True
        self.scheduler.stream(now)
        self._wait(now)

    def _receive(self) -> None:
        """Hand every message that has come to the scheduler: growth before the results to which it
        may be the answer."""
        early, self._early = self._early, ()
        for message in (*early, *self.transport.drain()):
            if isinstance(message, AskTimeline):
                self.scheduler.outbox.append(self.scheduler.timeline())
            elif isinstance(message, AskAlive):
                self.scheduler.outbox.append(Alive())
            elif not isinstance(message, StageNews):
                self.scheduler.receive(message, time.monotonic())
                self._changed = True

    def _settle(self) -> None:
        now = time.monotonic()
        try:
            for results in self.group.poll(now):
                self.scheduler.settle(results, now)
                self._changed = True
        except StageLost as error:
            self.scheduler.lose_group(str(error), now)
            self._changed = True

    def _follow_group(self, now: float) -> None:
        """Begin a life of the group where one is due; tell the server what has changed."""
        facts = self.group.advance(now)
        if facts is not None:
            rows = min(one.rows for one in facts)
            self._stages = tuple(map(layers_of, facts))
            self.scheduler.begin_group(self._pool_of(facts), rows, now)
        group = self.group
        state = StageGroupState(group.up, group.detail, group.losses, group.link, self._stages)
        if state != self._told:
            self.scheduler.outbox.append(state)
            self._told = state

    def _wait(self, now: float) -> None:
        waits = (self.scheduler.max_wait(now), self.group.max_wait(now))
        seconds = min((one for one in waits if one is not None), default=None)
        self._send(now)
        self.transport.wait(seconds)

    def _send(self, now: float) -> None:
        """Send what is in the outbox, and a report if one is due; an idle engine's always is."""
        outbox = self.scheduler.outbox
        self._changed = self._changed or bool(outbox)
        due = self.scheduler.idle or now - self._reported_at > REPORT_SECONDS
        if self._changed and due:
            outbox.append(self.scheduler.report())
            self._reported_at, self._changed = now, False
        if outbox:
            self.transport.send(*outbox)
            outbox.clear()


def layers_of(facts: StageFacts) -> StageLayers:
    """Return what is shown of a stage."""
    return StageLayers(
        index=facts.stage,
        first_layer=facts.layers.first,
        layers=facts.layers.count,
        dtype=facts.dtype,
        kv_blocks=facts.blocks,
    )
