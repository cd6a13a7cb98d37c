"""A worker without a model, on the address of its pod: real `Control`, health and HTTP.

Takes the arguments that a pod gives the real worker. `--on` replaces the host that it listens on:
all pods of a pod network share their interfaces. How it behaves stands in the file `--behaviour`,
which its test may replace at any time. Metrics are those of the real worker, made of the fake
state. Leaves its process to `pod_workers`.
"""

import argparse
import asyncio
import dataclasses
import hashlib
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.routing import Route

from outrider.contract.process import STAGE_PORT
from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.contract.state import EngineState, Link, LinkState, State
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal import control_pb2_grpc
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.server import HttpServer, listen
from outrider.worker.host.peers import add_port
from outrider.worker.server.call_errors import CallErrors
from outrider.worker.server.control import is_newer
from outrider.worker.server.control_service import parse_policy, state_message
from outrider.worker.server.metrics.exposition import Exposition
from outrider.worker.server.metrics.latencies import Latencies
from outrider.worker.server.readiness import HealthService
from tests.kube.behaviour import Behaviour, stamp
from tests.kube.fake_links import FakeLinks
from tests.kube.fake_stages import FakeStages
from tests.kube.tally import Tally

POLL_SECONDS = 0.05
PODS = Path("/etc/outrider")
"""Where a pod has the files of its worker, each kind in a folder of its own."""
GROUP_LOST = 1
"""Exit status of a stage that has lost another."""
CAN_DRAFT = ("on", "probe", "check")
STATUS = health_pb2.HealthCheckResponse
ENGINE = EngineState(
    max_context=0, dtype="fp32", threads=0, max_running=0, kv_bytes=0, prefix_cache=False
)


class Links(Protocol):
    """What a fake target says of its drafts."""

    def want(self, addresses: Sequence[str]) -> None:
        """Links to these drafts and to no others."""

    def statuses(self, refuses: str) -> tuple[Link, ...]:
        """One for each wanted draft."""


class FakeWorker(control_pb2_grpc.ControlServicer):
    """One life of a worker."""

    def __init__(
        self, settings: WorkerSettings, file: Path, links: Links, stages: FakeStages | None = None
    ) -> None:
        """`stages`: those that it depends on; None: it is a whole worker."""
        self.settings = settings
        self.stages = stages
        self.policy = settings.policy
        self.links = links
        self.links.want(settings.policy.drafts)
        self.incarnation = secrets.randbits(64)
        self.draining = False
        self.drained = asyncio.Event()
        self._file = file
        self._stamp = stamp(file)
        self.behaviour = dataclasses.replace(Behaviour.read(file), counters={})
        self._tally = Tally(time.monotonic())

    def look(self) -> None:
        """Reads the file again if it is another one, and lets the counters rise until now."""
        self._tally.rise(self.behaviour.rates, time.monotonic(), self.drafts)
        now = stamp(self._file)
        if now != self._stamp:
            self._stamp, self.behaviour = now, Behaviour.read(self._file)
            self._tally.set(self.behaviour.counters)

    @property
    def ready(self) -> bool:
        """Whether it takes requests or sessions."""
        met = self.stages is None or self.stages.complete
        return self.behaviour.ready and not self.draining and met

    @property
    def drafts(self) -> bool:
        """Whether draft rows are verified, or made."""
        if self.settings.role is Role.DRAFT:
            return True
        up = any(link.state is LinkState.UP for link in self._links())
        return up and self.policy.drafts_allowed and self.behaviour.drafting in CAN_DRAFT

    def state(self) -> State:
        """As the real worker reports it."""
        self.look()
        target = self.settings.role is Role.TARGET
        drafting = self.behaviour.drafting if self.policy.drafts_allowed else "disabled"
        return State(
            role=self.settings.role,
            model=self.settings.name,
            revision=hashlib.sha256(self.settings.model.uri.encode()).hexdigest()[:12],
            incarnation=self.incarnation,
            ready=self.ready,
            draining=self.draining,
            policy=self.policy,
            links=self._links(),
            running=self.behaviour.running,
            waiting=self.behaviour.waiting,
            counters=self._tally.counters(),
            drafting=drafting if target else "",
            dtype=ENGINE.dtype,
            engine=ENGINE,
            threads=self.settings.threads,
        )

    def _links(self) -> tuple[Link, ...]:
        return self.links.statuses(self.behaviour.refuses)

    async def GetState(self, request: pb.GetStateRequest, context: Any) -> pb.State:
        """The state, unchanged."""
        return state_message(self.state())

    async def SetPolicy(self, request: pb.SetPolicyRequest, context: Any) -> pb.State:
        """Takes a newer policy; refuses an older or a wrong one."""
        self.look()
        policy = parse_policy(request.policy)
        if is_newer(policy, self.policy):
            logging.info("policy %s", json.dumps(dataclasses.asdict(policy)))
            self.policy = policy
            self.links.want(policy.drafts)
        return state_message(self.state())

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:
        """Refuses new work; ends once nothing runs, or after the grace."""
        logging.info("drain within %s s", request.grace_seconds)
        self.look()
        self.draining = True
        asyncio.get_running_loop().call_later(request.grace_seconds, self.drained.set)
        return pb.DrainResponse(running=self.behaviour.running)

    def routes(self) -> tuple[Route, ...]:
        """Beside those of health."""
        exposition = Exposition(self.settings.role, self.settings.name)
        exposition.show(self.state)
        if self.settings.role is Role.TARGET:  # empty, but as long a text as the real worker's
            Latencies.start(exposition.registry, exposition.common)
        return (exposition.route(),)

    def is_ready(self) -> bool:
        """For `/readyz`."""
        self.look()
        return self.ready

    async def follow(self, health: HealthService) -> None:
        """Keeps health as the behaviour has it, and ends a drain when nothing runs."""
        told = None
        while True:
            status = STATUS.SERVING if self.is_ready() else STATUS.NOT_SERVING
            if status != told:
                told = status
                await health.set("", status)
            if self.draining and self.behaviour.running == 0:
                self.drained.set()
            await asyncio.sleep(POLL_SECONDS)


async def serve(settings: WorkerSettings, behaviour: Path, stages: FakeStages | None) -> int:
    """Serves until SIGTERM, the end of a drain or the loss of a stage; its exit status."""
    host = settings.listen.rpartition(":")[0]
    links = FakeLinks(host)
    worker, health = FakeWorker(settings, behaviour, links, stages), HealthService()
    ended = worker.drained
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = aio.server(interceptors=(CallErrors(),), options=[("grpc.so_reuseport", 0)])
    control_pb2_grpc.add_ControlServicer_to_server(worker, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    server.add_insecure_port(settings.listen)
    add_port(server, settings.control_listen, settings.peers)
    if stages is not None:
        server.add_insecure_port(f"{host}:{STAGE_PORT}")
    http = HttpServer(
        draft_application(worker.is_ready, worker.routes()), listen(settings.http_listen), settings
    )
    await server.start()
    http.start()
    logging.info("serves on %s", settings.addresses)
    async with asyncio.TaskGroup() as tasks:
        endless = (links.follow(), worker.follow(health))
        others = () if stages is None else (stages.follow(ended),)
        background = [tasks.create_task(work) for work in (*endless, *others)]
        await ended.wait()
        for task in background:
            task.cancel()
    await links.close()
    if stages is not None:
        await stages.close()
    await http.close()
    await server.stop(None)
    return GROUP_LOST if stages is not None and stages.lost else 0


def read(settings: Path, policy: Path | None, host: str) -> WorkerSettings:
    """The settings of the pod, on its own address, with the policy that was stored last."""
    plain = WorkerSettings.from_json(settings.read_text())
    beside = settings.parent.parent  # as in the pod
    folder = str(beside / "certificates")
    if plain.tls_cert is not None and plain.tls_key is not None:
        pair = (plain.tls_cert, plain.tls_key)
        cert, key = (str(beside / Path(file).relative_to(PODS)) for file in pair)
        plain = dataclasses.replace(plain, tls_cert=cert, tls_key=key)
    if policy is not None and policy.exists():
        values = json.loads(policy.read_text())
        known = PolicySettings(**{**values, "drafts": tuple(values.get("drafts", ()))})
        plain = dataclasses.replace(plain, policy=known)
    return dataclasses.replace(
        plain,
        listen=f"{host}:{plain.listen.rpartition(':')[2]}",
        control_listen=f"{host}:{plain.control_listen.rpartition(':')[2] or 0}",
        http_listen=f"{host}:{plain.http_listen.rpartition(':')[2]}",
        peers=plain.peers and dataclasses.replace(plain.peers, folder=folder),
    )


def run(arguments: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
    """The life of a process that was forked for this worker; `log` gets all that it says."""
    os.setsid()  # Ctrl-C is for pytest
    os.environ.update(variables)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    sys.exit(main(arguments))


def main(arguments: Sequence[str]) -> int:
    """Parses what a pod gives the real worker, and what `pod_workers` adds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve", "keep"])
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--on", required=True)
    parser.add_argument("--behaviour", type=Path, required=True)
    parser.add_argument("--hosts", type=Path, required=True)
    given = parser.parse_args(arguments)
    policy = None if Behaviour.read(given.behaviour).forgets else given.policy
    settings = read(given.settings, policy, given.on)
    place = StagePlace.of(os.environ, settings.pipeline.stages)
    stages = None if place is None else FakeStages(place, given.hosts)
    return asyncio.run(serve(settings, given.behaviour, stages))
