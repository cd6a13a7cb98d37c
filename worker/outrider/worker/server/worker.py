"""The parts of a worker's server process: put together, made ready, drained and closed.

Leaves every decision about tokens to the engine; `server` opens the ports first.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from outrider.contract import metrics
from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.protos.v1 import (
    control_pb2,
    control_pb2_grpc,
    drafter_pb2,
    inference_pb2,
    inference_pb2_grpc,
)
from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.http.app import application
from outrider.worker.api.http.draft_app import draft_application
from outrider.worker.api.http.server import HttpServer
from outrider.worker.api.http.status_counter import CountCodes
from outrider.worker.api.inference import Inference
from outrider.worker.api.request import Served
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.text import Text
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.launch.prepare import ModelFacts, Models, prepare_models, read_facts
from outrider.worker.launch.process import EngineProcess
from outrider.worker.launch.thread import EngineThread
from outrider.worker.link.service import DrafterService
from outrider.worker.messages import Drain, Identity, SetDrafts
from outrider.worker.sampling.grammar_tokenizer import tokenizer_of
from outrider.worker.server.control import About, ControlService
from outrider.worker.server.health import HealthService
from outrider.worker.server.metrics.exposition import Exposition
from outrider.worker.server.readiness import wait_for_first_link
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.tracing.environment import start_traces

if TYPE_CHECKING:
    from outrider.worker.server.tracing.traces import Traces

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Worker:
    """The parts of one running worker."""

    settings: WorkerSettings
    server: grpc.aio.Server
    health: HealthService
    engine: EngineHandle
    control: ControlService
    identity: Identity
    exposition: Exposition
    stop: Shutdown | None = None
    inference: Inference | None = None
    http: HttpServer | None = None
    traces: "Traces | None" = None

    @classmethod
    async def start(
        cls, settings: WorkerSettings, scratch: Path, server: grpc.aio.Server
    ) -> "Worker":
        """Prepares the model, starts the engine, and serves health as NOT_SERVING meanwhile."""
        models = await asyncio.to_thread(prepare_models, settings)
        engine = await start_engine(settings, models, scratch)
        facts = await asyncio.to_thread(read_facts, settings, models)
        identity = Identity(
            revision=models.own.revision,
            incarnation=secrets.randbits(64),
            context=facts.context,
            vocabulary=facts.vocabulary,
            hashes=facts.hashes,
            outputs=facts.outputs,
            sessions=settings.max_running,
        )
        control = ControlService(
            about=About(settings.role, settings.name, settings.threads, identity),
            engine=engine,
            policy=settings.policy,
            on_policy=lambda policy: None,
            on_drain=lambda grace: None,
        )
        exposition = Exposition(settings.role, settings.name, control.state)
        worker = cls(settings, server, HealthService(), engine, control, identity, exposition)
        control.on_policy, control.on_drain = worker.set_drafts, worker.drain
        if settings.role is Role.TARGET:
            worker.add_target(models, facts)
        else:
            worker.add_draft()
        worker.add_traces()
        worker.add_common_services()
        await worker.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await server.start()
        return worker

    def add_target(self, models: Models, facts: ModelFacts) -> None:
        """Registers `Inference`."""
        served = Served(
            name=self.settings.name,
            revision=self.identity.revision,
            context=facts.context,
            vocabulary=facts.vocabulary,
            end_ids=facts.end_ids,
        )
        self.inference = Inference(
            served,
            Text.load(models.own.tokenizer),
            self.engine,
            self.settings.max_waiting,
            self.settings.queue_seconds,
            forms_of(models, facts),
            self.settings.request_seconds,
        )
        self.inference.linking = self.awaits_link
        inference_pb2_grpc.add_InferenceServicer_to_server(self.inference, self.server)
        self.exposition.watch(self.engine)
        self.exposition.count(metrics.REQUESTS_REFUSED, self.inference.refused)

    def serve_http(self, listener: socket.socket, keys: ApiKeys | None) -> None:
        """Begins to serve metrics and, for a target, the OpenAI-compatible API beside gRPC."""
        more = (self.exposition.route(),)
        if self.inference is None:
            app = draft_application(lambda: self.control.state().ready, more)
        else:
            app = application(self.inference, self.settings.request_seconds, keys, more)
        codes: Counter[str] = Counter()
        self.exposition.count(metrics.HTTP_REQUESTS, codes)
        self.http = HttpServer(CountCodes(app, codes), listener, self.settings)
        self.http.start()
        logger.info("HTTP listens on port %d", listener.getsockname()[1])

    def add_draft(self) -> None:
        """Registers `DrafterService`."""
        drafter = DrafterService(self.identity, self.engine.send)
        self.engine.on_peer = drafter.send
        self.server.add_generic_rpc_handlers((drafter.handler(),))

    def add_traces(self) -> None:
        """Begins to trace requests or sessions, if the environment asks for it."""
        instance = f"{self.identity.incarnation:016x}"
        self.traces = start_traces(os.environ, self.settings.role, self.settings.name, instance)
        if self.traces is None:
            return
        self.engine.on_finished = self.traces.finished
        self.engine.on_session = self.traces.session_ended
        if self.inference is not None:
            self.inference.trace = self.traces.begin

    def set_drafts(self, policy: PolicySettings) -> None:
        """Tells a target which drafts to keep links to."""
        if self.settings.role is Role.TARGET:
            self.engine.send(SetDrafts(self.identity, policy.drafts))

    def add_common_services(self) -> None:
        """Registers `ControlService`, health and reflection."""
        control_pb2_grpc.add_ControlServicer_to_server(self.control, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        names = [
            control_pb2.DESCRIPTOR.services_by_name["Control"].full_name,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        ]
        if self.settings.role is Role.TARGET:
            names.append(inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name)
        else:
            names.append(drafter_pb2.DESCRIPTOR.services_by_name["Drafter"].full_name)
        reflection.enable_server_reflection(names, self.server)

    async def run(self, stop: Shutdown) -> int:
        """Serves until told to stop or until the engine dies; returns the exit status."""
        self.stop = stop
        stopping = asyncio.create_task(stop.requested.wait())
        gone = asyncio.create_task(self.engine.gone.wait())
        try:
            ready = asyncio.create_task(self.become_ready())
            await asyncio.wait((stopping, gone, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            else:
                ready.cancel()
            await asyncio.wait((stopping, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            stopping.cancel()
        if self.engine.gone.is_set():
            return 1
        await self.finish_running(stop.grace)
        return 0

    async def become_ready(self) -> None:
        """Waits for the engine, then serves; raises `ModelError` if it cannot start."""
        ready = await self.engine.ready
        self.set_drafts(self.control.policy)
        if self.inference is not None and self.awaits_link:
            await wait_for_first_link(self.control.links, self.settings.link_seconds)
            self.inference.linking = False
        await self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        logger.info("ready: %s weights, %d sessions", ready.dtype, ready.sessions)

    @property
    def awaits_link(self) -> bool:
        """Whether this is a target that starts with drafts and is to be ready with them."""
        named = bool(self.settings.policy.drafts) and self.settings.role is Role.TARGET
        return named and self.settings.link_seconds > 0

    def drain(self, grace: float) -> None:
        """Begins to stop, from `ControlService.Drain`."""
        if self.stop is not None:
            self.stop.request(grace)

    async def finish_running(self, grace: float) -> None:
        """Takes nothing new; within `grace` seconds requests finish, or targets are told to go."""
        self.control.draining = True
        if self.inference is not None:
            self.inference.draining = True
        await self.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        if self.settings.role is Role.DRAFT:
            self.engine.send(Drain())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.busy:
                    await asyncio.sleep(0.02)
        if self.inference is not None:
            self.inference.end_open()

    @property
    def busy(self) -> bool:
        """Whether requests run, or a draft's sessions have not been closed yet."""
        if self.settings.role is Role.TARGET:
            return bool(self.engine.answers)
        loading = not self.engine.ready.done()
        return not (loading or self.engine.gone.is_set() or self.engine.report.draining)

    async def close(self) -> None:
        """Ends links, streams and the engine; nothing is left behind."""
        if self.http is not None:
            await self.http.close()
        await self.server.stop(grace=0.2)
        await self.engine.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)


def forms_of(models: Models, facts: ModelFacts) -> ResponseFormats:
    """What a target's requests may ask of the form of their answers."""
    if not facts.end_ids:
        return ResponseFormats(None)
    return ResponseFormats(lambda: tokenizer_of(models.own, facts.vocabulary, facts.end_ids))


async def start_engine(settings: WorkerSettings, models: Models, scratch: Path) -> EngineHandle:
    """A target's engine in a process of its own, a draft's on a thread of this one."""
    if settings.role is Role.DRAFT:
        return EngineThread(settings, models)
    prepared = scratch / "models.json"
    prepared.write_text(models.to_json())
    return await EngineProcess.start(settings, prepared)
