"""The `ControlService` service of both roles: policy in, state out, drain.

Holds the policy in force; the engine gets a copy of each newer one.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from outrider.contract.settings import POLICY_RANGES, PolicySettings
from outrider.protos.v1 import control_pb2 as pb
from outrider.protos.v1 import control_pb2_grpc
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.errors import InvalidField
from outrider.worker.messages import Identity, Ready, SetPolicy
from outrider.worker.sampling.params import require

logger = logging.getLogger(__name__)

MAX_GRACE_SECONDS = 3600.0
Context = Any


@dataclass(frozen=True, slots=True)
class About:
    """What never changes in one life of a worker."""

    role: str
    model: str
    threads: int
    identity: Identity


@dataclass(slots=True)
class ControlService(control_pb2_grpc.ControlServicer):
    """One worker's policy and state."""

    about: About
    engine: EngineHandle
    policy: PolicySettings
    on_policy: Callable[[PolicySettings], None]
    on_drain: Callable[[float], None]
    draining: bool = False

    async def SetPolicy(self, request: pb.SetPolicyRequest, context: Context) -> pb.State:
        """Takes a newer policy; an older one changes nothing."""
        try:
            policy = parse_policy(request.policy)
        except InvalidField as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        if policy.version > self.policy.version:
            self.policy = policy
            self.engine.send(SetPolicy(policy))
            self.on_policy(policy)
            logger.info("policy %d: %s", policy.version, policy)
        return self.state()

    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.State:
        """The state, unchanged."""
        return self.state()

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Refuses new work, waits for what runs, then stops the worker."""
        self.draining = True
        running = self.engine.report.running
        grace = min(max(request.grace_seconds, 0.0), MAX_GRACE_SECONDS)
        asyncio.get_running_loop().call_soon(self.on_drain, grace)
        return pb.DrainResponse(running=running)

    def state(self) -> pb.State:
        """Everything that `GetState` reports."""
        report = self.engine.report
        ready = self._ready()
        return pb.State(
            role=self.about.role,
            model=self.about.model,
            revision=self.about.identity.revision,
            incarnation=self.about.identity.incarnation,
            ready=ready is not None and not self.draining,
            draining=self.draining,
            policy=pb.Policy(**dataclasses.asdict(self.policy)),
            links=self.links(),
            running=report.running,
            waiting=report.waiting,
            counters=pb.Counters(**dataclasses.asdict(report.counters)),
            dtype=ready.dtype if ready else "",
            threads=self.about.threads,
            step_seconds=ready.step_seconds if ready else {},
            engine=self._engine(ready) if ready else None,
            drafting=report.drafting,
            last_rows=report.last_rows,
            last_node_rows=report.last_node_rows,
        )

    def links(self) -> list[pb.Link]:
        """One for each draft of the policy in force, as the engine last told of it."""
        told = {link.address: link for link in map(pb.Link.FromString, self.engine.links)}
        return [
            told.get(address, pb.Link(address=address, state=pb.LINK_STATE_CONNECTING))
            for address in self.policy.drafts
        ]

    def _engine(self, ready: Ready) -> pb.Engine:
        """What the engine's settings came to."""
        return pb.Engine(
            max_context=ready.context,
            dtype=ready.dtype,
            threads=self.about.threads,
            max_running=ready.sessions,
            kv_bytes=ready.kv_bytes,
            prefix_cache=ready.prefix_cache,
        )

    def _ready(self) -> Ready | None:
        future = self.engine.ready
        return future.result() if future.done() and not future.exception() else None


def parse_policy(policy: pb.Policy) -> PolicySettings:
    """Policy from the wire; raises `InvalidField`."""
    for name, (least, most) in POLICY_RANGES.items():
        value = getattr(policy, name)
        require(least <= value <= most, f"policy.{name}", value, f"it must be {least} to {most}")
    return PolicySettings(
        version=policy.version,
        speculate=policy.speculate,
        max_rows=policy.max_rows,
        depth=policy.depth,
        width=policy.width,
        nodes_ahead=policy.nodes_ahead,
        drafts=tuple(policy.drafts),
        off_below_percent=policy.off_below_percent,
        on_above_percent=policy.on_above_percent,
    )
