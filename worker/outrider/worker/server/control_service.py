"""The `Control` service of both roles over gRPC, and its messages of policy and state.

Leaves the policy in force and the drain to `control`.
"""

import dataclasses
import time
from typing import Any, Protocol

import grpc

from outrider.contract.addresses import address_problem
from outrider.contract.settings import (
    MAX_THREADS,
    POLICY_RANGES,
    PolicySettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.contract.sources import SOURCES, SourceKind, source_problem
from outrider.protos.v1 import control_pb2 as pb
from outrider.protos.v1 import control_pb2_grpc
from outrider.worker.api.text import Text
from outrider.worker.errors import InvalidField, PolicySuperseded, Stopping, status
from outrider.worker.host.peers import EVERYBODY, AllowedCaller, beyond_loopback
from outrider.worker.messages import (
    EngineReport,
    LinkState,
    LinkStatus,
    Measure,
    Ready,
    SegmentTotals,
    StageGroupState,
    StageTotals,
    Timeline,
)
from outrider.worker.sampling.params import require
from outrider.worker.server.control import Control, WorkerState

SERVICE = pb.DESCRIPTOR.services_by_name["Control"].full_name
LINK_STATES = {
    LinkState.CONNECTING: pb.LINK_STATE_CONNECTING,
    LinkState.UP: pb.LINK_STATE_UP,
    LinkState.REFUSED: pb.LINK_STATE_REFUSED,
}
MOST_ROWS = 32
"""Rows of a pass that is timed: those of a model with the shortest context."""
Context = Any


class Controlled(Protocol):
    """What is controlled: a worker, or one stage of a pipelined target."""

    def set_policy(self, policy: PolicySettings) -> None: ...
    def state(self) -> WorkerState: ...
    def drain(self, grace: float) -> int: ...
    async def timeline(self) -> Timeline: ...


class ControlService(control_pb2_grpc.ControlServicer):
    """Methods of control.proto on one worker."""

    def __init__(self, control: Controlled, admission: AllowedCaller = EVERYBODY) -> None:
        self._control = control
        self._admission = admission

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        control_pb2_grpc.add_ControlServicer_to_server(self, server)

    async def SetPolicy(self, request: pb.SetPolicyRequest, context: Context) -> pb.State:
        """Take a newer policy, or once more the one in force; refuse any other."""
        await self._admission.check(context)
        try:
            self._control.set_policy(parse_policy(request.policy))
        except (InvalidField, PolicySuperseded) as error:
            await context.abort(status(error), str(error))
            raise
        return state_message(self._control.state())

    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.State:
        """Return the state, unchanged."""
        await self._admission.check(context)
        return state_message(self._control.state())

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Refuse new work, wait for what runs, then stop the worker."""
        await self._admission.check(context)
        return pb.DrainResponse(running=self._control.drain(request.grace_seconds))

    async def GetTimeline(self, request: pb.GetTimelineRequest, context: Context) -> pb.Timeline:
        """Return what was computed lately."""
        await self._admission.check(context)
        return timeline_message(await self._control.timeline())

    async def Measure(self, request: pb.MeasureRequest, context: Context) -> pb.MeasureResponse:
        """Measure on an engine that is not told yet how to run."""
        control = await self._undecided(context)
        try:
            measured = await control.engine.measured(parse_measure(request, control.text))
        except (InvalidField, Stopping) as error:
            await context.abort(status(error), str(error))
            raise
        return pb.MeasureResponse(**dataclasses.asdict(measured))

    async def Arrange(self, request: pb.ArrangeRequest, context: Context) -> pb.ArrangeResponse:
        """Tell an engine how to run that does not know it yet."""
        control = await self._undecided(context)
        try:
            control.arrange(WorkerSettings.from_json(request.settings))
        except SettingsError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.ArrangeResponse()

    async def _undecided(self, context: Context) -> Control:
        """Return the control of a worker that is not told yet how to run; refuse any other."""
        await self._admission.check(context)
        if not isinstance(self._control, Control) or not self._control.undecided:
            words = "this worker does not await an arrangement"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, words)
            raise AssertionError(words)
        return self._control


def control_admission(settings: WorkerSettings) -> AllowedCaller:
    """Return who may call Control."""
    peers = beyond_loopback(settings.peers, settings.control_listen or settings.listen)
    return AllowedCaller(None if peers is None else peers.operator)


def parse_policy(policy: pb.Policy) -> PolicySettings:
    """Convert a policy; raise `InvalidField`."""
    values: dict[str, Any] = {
        field.name: getattr(policy, field.name) for field in dataclasses.fields(PolicySettings)
    }
    kinds = {kind.value: kind for kind in SOURCES}
    for name in policy.sources:
        require(name in kinds, "policy.sources", name, f"it must be one of {', '.join(SOURCES)}")
    values |= {
        "drafts": tuple(policy.drafts),
        "sources": tuple(kinds[name] for name in policy.sources) or (SourceKind.DRAFT,),
    }
    parsed = PolicySettings(**values)
    for name, (least, most) in POLICY_RANGES.items():
        value = getattr(parsed, name)
        require(least <= value <= most, f"policy.{name}", value, f"it must be {least} to {most}")
    if problem := source_problem(parsed.sources):
        raise InvalidField("policy.sources", list(policy.sources), problem)
    if wrong := address_problem(parsed.drafts):
        raise InvalidField("policy.drafts", f"{len(parsed.drafts)} addresses", wrong)
    return parsed


def parse_measure(request: pb.MeasureRequest, text: Text | None) -> Measure:
    """Convert what to measure; prompts become turns of a chat where `text` has a template.

    Raises `InvalidField`.
    """
    threads, most = request.threads, max((one.rows for one in request.passes), default=1)
    require(0 < threads <= MAX_THREADS, "threads", threads, f"it must be 1 to {MAX_THREADS}")
    require(0 < most <= MOST_ROWS, "passes.rows", most, f"it must be 1 to {MOST_ROWS}")
    require(text is not None or not request.prompts, "prompts", None, "only a target answers")
    roles = {True: Role.DRAFT, False: Role.TARGET}
    return Measure(
        threads=threads,
        processors=tuple(request.processors),
        passes=tuple((roles[one.draft], one.rows) for one in request.passes),
        seconds=request.seconds,
        prompts=tuple(tuple(text.encode_question(one)) for one in request.prompts if text),
        tokens=request.tokens,
    )


def state_message(state: WorkerState) -> pb.State:
    """Convert a worker's state."""
    report, engine = state.report, state.engine
    return pb.State(
        role=state.role,
        model=state.model,
        revision=state.revision,
        incarnation=state.incarnation,
        ready=state.ready,
        draining=state.draining,
        policy=pb.Policy(**dataclasses.asdict(state.policy)),
        links=map(_link, state.links),
        running=report.running,
        waiting=report.waiting,
        counters=pb.Counters(**dataclasses.asdict(report.counters)),
        dtype=state.dtype,
        threads=state.threads,
        step_seconds=engine.step_seconds if engine else {},
        engine=_engine(engine, state.threads) if engine else None,
        drafting=report.drafting,
        last_rows=report.last_rows,
        last_node_rows=report.last_node_rows,
        planner_choice=report.planner_choice,
        draft_lag=report.draft_lag,
        stage=pb.StageState(**dataclasses.asdict(state.stage)) if state.stage else None,
        stages=_stages(state.stages, report) if state.stages else None,
        memory=pb.Memory(**dataclasses.asdict(report.memory)) if report.memory else None,
    )


def timeline_message(timeline: Timeline) -> pb.Timeline:
    """Convert a timeline; its times become Unix times."""
    ahead = time.time() - time.monotonic()
    return pb.Timeline(
        spans=[
            pb.TimelineSpan(
                **span._asdict()
                | {name: getattr(span, name) + ahead for name in ("came", "began", "ended")}
            )
            for span in timeline.spans
        ]
    )


def _stages(group: StageGroupState, report: EngineReport) -> pb.StageGroup:
    """Convert what is known of a target's stages; those that did nothing yet have no totals."""
    totals = report.stages or (StageTotals(),) * len(group.stages)
    return pb.StageGroup(
        up=group.up,
        detail=group.detail,
        losses=group.losses,
        link=group.link,
        **dataclasses.asdict(report.segments or SegmentTotals()),
        each=[
            pb.StageView(**dataclasses.asdict(layers), **dataclasses.asdict(total))
            for layers, total in zip(group.stages, totals, strict=True)
        ],
    )


def _link(link: LinkStatus) -> pb.Link:
    return pb.Link(**dataclasses.asdict(link) | {"state": LINK_STATES[link.state]})


def _engine(engine: Ready, threads: int) -> pb.Engine:
    return pb.Engine(
        max_context=engine.context,
        dtype=engine.dtype,
        threads=threads,
        max_running=engine.sessions,
        kv_bytes=engine.kv_bytes,
        prefix_cache=engine.prefix_cache,
        path_seconds=engine.path_seconds,
    )
