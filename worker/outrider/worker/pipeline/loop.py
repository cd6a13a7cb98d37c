"""The engine's loop of a pipelined target, whose passes are run by its stages.

Driven by events: messages of the server, growth of drafts, results of the last stage, a group of
stages that is lost or up again. Nobody waits for anybody. Leaves requests to a
`PipelinedScheduler`, the stages to a `StageGroupLinks`, bytes to a `Transport`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from outrider.contract.state import StageLayers
from outrider.worker.engine.loop import EngineLoop, Transport, WakeUp
from outrider.worker.errors import StageLost
from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.messages import (
    StageGroupState,
)
from outrider.worker.pipeline.scheduler import PipelinedScheduler
from outrider.worker.pipeline.stage_group import Facts, StageGroupLinks
from outrider.worker.pipeline.wire.hello import StageFacts

STAGE_NEWS = WakeUp()
"""The group of stages has news."""


class PipelinedEngine(EngineLoop):
    """The engine of a pipelined target."""

    scheduler: PipelinedScheduler

    def __init__(
        self,
        scheduler: PipelinedScheduler,
        group: StageGroupLinks,
        transport: Transport,
        pool_of: Callable[[Facts], BlockPool],
        early: Sequence[Any] = (),
    ) -> None:
        """`pool_of` returns the empty KV of stages; `early`: messages that came before."""
        super().__init__(scheduler, transport, scheduler.timeline, early)
        self.group = group
        self._pool_of = pool_of
        self._told: StageGroupState | None = None
        self._stages = tuple(map(layers_of, group.facts))
        """Stages of the last group that was up."""

    def run(self) -> None:
        """Go on until the server is gone, then end the group."""
        try:
            super().run()
        finally:
            self.group.close()

    def step(self) -> None:
        """Handle all that has come, send what follows, and sleep until there is more.

        Growth is received before the results to which it may be the answer.
        """
        self.receive()
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
        self._changed = self._changed or bool(self.scheduler.outbox)
        self.send(self.scheduler.idle)
        self.transport.wait(seconds)


def layers_of(facts: StageFacts) -> StageLayers:
    """Return what is shown of a stage."""
    return StageLayers(
        index=facts.stage,
        first_layer=facts.layers.first,
        layers=facts.layers.count,
        dtype=facts.dtype,
        kv_blocks=facts.blocks,
    )
