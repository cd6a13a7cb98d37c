"""The `Control` service of both roles over gRPC, and its messages of policy and state.

Leaves the policy in force and the drain to `control`, and statuses of the errors that its methods
raise to the server.
"""

import json
import time
from dataclasses import asdict, fields
from typing import Any, Protocol

import grpc

from outrider.contract.settings import (
    MAX_THREADS,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.contract.sources import SourceKind
from outrider.contract.state import State
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal import control_pb2_grpc
from outrider.worker.api.text import Text
from outrider.worker.host.peers import EVERYBODY, AllowedCaller, add_port, beyond_loopback
from outrider.worker.messages import Measure, Timeline
from outrider.worker.sampling.params import require
from outrider.worker.server.call_errors import CallErrors
from outrider.worker.server.control import Control

SERVICE = pb.DESCRIPTOR.services_by_name["Control"].full_name
MOST_ROWS = 32
"""Rows of a pass that is timed: those of a model with the shortest context."""
Context = Any


class Controlled(Protocol):
    """What is controlled: a worker, or one stage of a pipelined target."""

    def set_policy(self, policy: PolicySettings) -> None: ...
    def state(self) -> State: ...
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
        self._control.set_policy(parse_policy(request.policy))
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
        measured = await control.engine.measured(parse_measure(request, control.text))
        return pb.MeasureResponse(**asdict(measured))

    async def Arrange(self, request: pb.ArrangeRequest, context: Context) -> pb.ArrangeResponse:
        """Tell an engine how to run that does not know it yet."""
        control = await self._undecided(context)
        control.arrange(WorkerSettings.from_json(request.settings))
        return pb.ArrangeResponse()

    async def _undecided(self, context: Context) -> Control:
        """Return the control of a worker that is not told yet how to run; refuse any other."""
        await self._admission.check(context)
        if not isinstance(self._control, Control) or not self._control.undecided:
            words = "this worker does not await an arrangement"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, words)
            raise AssertionError(words)
        return self._control


def control_server(settings: WorkerSettings, address: str) -> grpc.aio.Server:
    """Return the server of Control with its port; raises `RuntimeError` and `SettingsError`."""
    server = grpc.aio.server(interceptors=(CallErrors(),), options=(("grpc.so_reuseport", 0),))
    add_port(server, address, beyond_loopback(settings.peers, address))
    return server


def control_admission(settings: WorkerSettings) -> AllowedCaller:
    """Return who may call Control."""
    peers = beyond_loopback(settings.peers, settings.control_listen or settings.listen)
    return AllowedCaller(None if peers is None else peers.operator)


def parse_policy(policy: pb.Policy) -> PolicySettings:
    """Convert a policy; raise `SettingsError`."""
    values = {field.name: getattr(policy, field.name) for field in fields(PolicySettings)}
    sources = list(policy.sources) or [SourceKind.DRAFT]
    return PolicySettings.from_json(
        json.dumps(values | {"drafts": list(policy.drafts), "sources": sources})
    )


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


def state_message(state: State) -> pb.State:
    """Convert a worker's state."""
    values = asdict(state)
    for link in values["links"]:
        link["state"] = f"LINK_STATE_{link['state'].name}"
    return pb.State(**values)


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
