"""Control of one worker: its policy, its drain, and its state as one value.

Leaves messages to `control_service`; the engine gets a copy of each newer policy.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from outrider.contract.settings import (
    MAX_GRACE_SECONDS,
    MAX_VERSION_STEP,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.contract.state import (
    INSIDE,
    EngineState,
    EngineWork,
    Link,
    LinkState,
    SegmentTotals,
    StageGroup,
    StageTotals,
    StageView,
    State,
)
from outrider.worker.api.availability import Availability
from outrider.worker.api.text import Text
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.errors import InvalidField, PolicySuperseded
from outrider.worker.host.process import keep_process_to
from outrider.worker.messages import (
    Arrange,
    EngineReport,
    Identity,
    Ready,
    SetDrafts,
    SetPolicy,
    StageGroupState,
    Timeline,
)

logger = logging.getLogger(__name__)


def is_newer(policy: PolicySettings, known: PolicySettings) -> bool:
    """Return True if a policy may replace the one that is known, False if it is that one.

    Raises `PolicySuperseded` for a version that is none above it, and `InvalidField` for one so far
    above it that there would soon be no room for later ones.
    """
    if policy == known:
        return False
    if policy.version <= known.version:
        raise PolicySuperseded(policy.version, known.version)
    most = known.version + MAX_VERSION_STEP
    if policy.version > most:
        limit = f"it must be at most {most}: the newest is {known.version}"
        raise InvalidField("policy.version", policy.version, limit)
    return True


@dataclass(slots=True)
class Control:
    """One worker's policy and state."""

    role: Role
    model: str
    threads: int
    identity: Identity
    engine: EngineHandle
    availability: Availability
    policy: PolicySettings
    on_drain: Callable[[float], None]
    """Stops the worker within so many seconds."""
    undecided: bool = False
    """Whether the engine is not told yet how to run."""
    text: Text | None = None
    """A target's tokenizer."""

    def arrange(self, settings: WorkerSettings) -> None:
        """Tell an engine that does not know it yet how to run."""
        self.undecided = False
        self.threads = settings.threads
        self.policy = settings.policy
        keep_process_to(settings.other_processors)
        self.engine.send(Arrange(settings))

    def set_policy(self, policy: PolicySettings) -> None:
        """Take a newer policy.

        Raises `PolicySuperseded` and `InvalidField`.
        """
        if is_newer(policy, self.policy):
            self.policy = policy
            self.engine.send(SetPolicy(policy))
            self.send_drafts()
            logger.info("policy %d: %s", policy.version, policy)

    def send_drafts(self) -> None:
        """Tell a target's engine which drafts to keep links to."""
        if self.role is Role.TARGET:
            self.engine.send(SetDrafts(self.identity, self.policy.drafts))

    def drain(self, grace: float) -> int:
        """Begin to stop, soon; return the count of running requests."""
        self.availability.drain()
        seconds = min(max(grace, 0.0), MAX_GRACE_SECONDS)
        asyncio.get_running_loop().call_soon(self.on_drain, seconds)
        return self.engine.report.running

    @property
    def ready(self) -> bool:
        """True if requests or sessions are taken."""
        stages = self.engine.stages
        up = (stages is None or stages.up) and not self.availability.draining
        return self._engine_ready() is not None and up

    @property
    def links(self) -> tuple[Link, ...]:
        """One for each draft of the policy in force, as the engine last reported it; then that of a
        draft in the engine itself which was refused."""
        known = {link.address: link for link in self.engine.links}
        links = tuple(known.get(address, Link(address)) for address in self.policy.drafts)
        engine = self._engine_ready()
        if engine is None or not engine.refused_draft:
            return links
        return *links, Link(INSIDE, LinkState.REFUSED, engine.refused_draft)

    def state(self) -> State:
        """Return the state now."""
        report, engine, group = self.engine.report, self._engine_ready(), self.engine.stages
        return State(
            role=self.role,
            model=self.model,
            revision=self.identity.revision,
            incarnation=self.identity.incarnation,
            ready=self.ready,
            draining=self.availability.draining,
            policy=self.policy,
            links=self.links,
            dtype=engine.dtype if engine else "",
            threads=self.threads,
            step_seconds=engine.step_seconds if engine else {},
            engine=_engine(engine, self.threads) if engine else None,
            stages=_stages(group, report) if group else None,
            **{field.name: getattr(report, field.name) for field in fields(EngineWork)},
        )

    async def timeline(self) -> Timeline:
        """Return what the engine computed lately."""
        return await self.engine.timeline()

    def _engine_ready(self) -> Ready | None:
        future = self.engine.ready
        return future.result() if future.done() and not future.exception() else None


def _engine(engine: Ready, threads: int) -> EngineState:
    return EngineState(
        max_context=engine.context,
        dtype=engine.dtype,
        threads=threads,
        max_running=engine.sessions,
        kv_bytes=engine.kv_bytes,
        prefix_cache=engine.prefix_cache,
        path_seconds=engine.path_seconds,
    )


def _stages(group: StageGroupState, report: EngineReport) -> StageGroup:
    """Return what is known of a target's stages; those that did nothing yet have empty totals."""
    totals = report.stages or (StageTotals(),) * len(group.stages)
    return StageGroup(
        up=group.up,
        detail=group.detail,
        losses=group.losses,
        link=group.link,
        each=tuple(
            StageView(**asdict(layers), **asdict(total))
            for layers, total in zip(group.stages, totals, strict=True)
        ),
        **asdict(report.segments or SegmentTotals()),
    )
