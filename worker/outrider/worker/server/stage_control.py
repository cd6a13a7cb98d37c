"""Control of one pipeline stage: its state, and its drain.

Policies are the leader's: a stage keeps the last one it was given, and does nothing by it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from outrider.contract.settings import MAX_GRACE_SECONDS, PolicySettings, Role, WorkerSettings
from outrider.contract.state import StageState, State
from outrider.worker.launch.load_stage import LoadedStage
from outrider.worker.messages import Timeline
from outrider.worker.pipeline.stage_loop import StageLoop
from outrider.worker.server.control import is_newer


@dataclass(slots=True)
class StageControl:
    """One stage's state."""

    settings: WorkerSettings
    incarnation: int
    policy: PolicySettings
    on_drain: Callable[[float], None]
    """Stops the stage within so many seconds."""
    loaded: LoadedStage | None = None
    """None until the model is loaded."""
    loop: StageLoop | None = None
    draining: bool = False

    @property
    def ready(self) -> bool:
        """True if groups are taken."""
        return self.loaded is not None and not self.draining

    def set_policy(self, policy: PolicySettings) -> None:
        """Keep a newer policy; raises what `is_newer` does."""
        if is_newer(policy, self.policy):
            self.policy = policy

    def drain(self, grace: float) -> int:
        """Begin to stop, soon; return 0: requests are the leader's."""
        self.draining = True
        seconds = min(max(grace, 0.0), MAX_GRACE_SECONDS)
        asyncio.get_running_loop().call_soon(self.on_drain, seconds)
        return 0

    def state(self) -> State:
        """Return the state now."""
        stage = self._status()
        return State(
            role=Role.TARGET,
            model=self.settings.name,
            revision="" if self.loaded is None else self.loaded.identity.revision,
            incarnation=self.incarnation,
            threads=self.settings.threads,
            ready=self.ready,
            draining=self.draining,
            policy=self.policy,
            dtype=stage.dtype if stage else "",
            stage=stage,
        )

    async def timeline(self) -> Timeline:
        """Return nothing: the leader has the times of all stages."""
        return Timeline()

    def _status(self) -> StageState | None:
        if self.loaded is None or self.loop is None:
            return None
        own, counters, traffic = self.loaded.identity, self.loop.counters, self.loop.traffic
        return StageState(
            index=own.facts.stage,
            stages=own.stages,
            first_layer=own.facts.layers.first,
            layers=own.facts.layers.count,
            dtype=own.facts.dtype,
            kv_blocks=own.facts.blocks,
            in_group=self.loop.links is not None,
            groups=counters.groups,
            segments=counters.segments,
            rows=counters.rows,
            rows_waiting=self.loop.rows_waiting,
            busy_seconds=counters.busy_seconds,
            received_bytes=traffic.received_bytes,
            sent_bytes=traffic.sent_bytes,
        )
