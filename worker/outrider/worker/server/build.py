"""The parts of a worker's server process, constructed in order: engine, control, services, HTTP.

Leaves the ports to `serve` and the life of the parts to `worker`.
"""

import asyncio
import dataclasses
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from llguidance import LLTokenizer

from outrider.contract import metrics
from outrider.contract.addresses import is_loopback
from outrider.contract.files import write_text
from outrider.contract.settings import LinkTransport, Role, SettingsError, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.api import service as inference_service
from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.availability import Availability
from outrider.worker.api.call_tags import call_grammar
from outrider.worker.api.http.app import draft_application, page_routes, target_application
from outrider.worker.api.http.server import CountedListener, HttpServer
from outrider.worker.api.inference import Inference
from outrider.worker.api.request import ServedModel
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.service import InferenceService
from outrider.worker.api.text import Text
from outrider.worker.engine.handle import EngineHandle, Listeners
from outrider.worker.errors import LinkBroken
from outrider.worker.host.peers import AllowedCaller, beyond_loopback
from outrider.worker.launch.prepare import ModelFacts, Models, prepare_models, read_facts
from outrider.worker.launch.process import NO_VARIABLES, EngineProcess
from outrider.worker.launch.thread import EngineThread
from outrider.worker.link import distributed, memory_file
from outrider.worker.link import service as drafter_service
from outrider.worker.link.meeting import MeetingPlace
from outrider.worker.link.service import DrafterService, SendQueues
from outrider.worker.messages import NO_KEY, ONE_KEY, Identity
from outrider.worker.sampling.default_params import default_sampling
from outrider.worker.sampling.grammar_tokenizer import tokenizer_of
from outrider.worker.server import control_service
from outrider.worker.server.control import Control
from outrider.worker.server.control_service import ControlService, control_admission
from outrider.worker.server.daemon_work import unless_stopped
from outrider.worker.server.measured_cut import with_cut
from outrider.worker.server.metrics.exposition import Exposition
from outrider.worker.server.metrics.latencies import Latencies
from outrider.worker.server.readiness import HealthService
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.stage_processes import StageProcesses
from outrider.worker.server.tracing.environment import start_traces
from outrider.worker.server.worker import Worker

if TYPE_CHECKING:
    from outrider.worker.server.tracing.traces import Traces


logger = logging.getLogger(__name__)

Server = grpc.aio.Server
DISTANT = (LinkTransport.GRPC, LinkTransport.DISTRIBUTED)
"""What needs no meeting."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Open ports of a worker, and the keys that they want."""

    grpc: Server
    control: Server | None
    """Server of Control alone; None: Control is served with all else."""
    http: CountedListener | None
    keys: ApiKeys | None

    @property
    def servers(self) -> tuple[Server, ...]:
        """The gRPC servers."""
        return (self.grpc,) if self.control is None else (self.grpc, self.control)


async def build_worker(
    settings: WorkerSettings,
    scratch: Path,
    ports: Ports,
    stop: Shutdown,
    prepare: Callable[[WorkerSettings], Models] = prepare_models,
) -> Worker:
    """Prepare the model, start the engine, and construct the parts around it.

    Raises `ModelError`, and `Stopping` if `stop` is requested while the model is prepared or a cut
    measured.
    """
    await asyncio.to_thread(require_link, settings)
    models = await unless_stopped(lambda: prepare(settings), "preparing", stop.requested)
    exposition, queues = Exposition(settings.role, settings.name), SendQueues()
    incarnation = secrets.randbits(64)
    traces = start_traces(os.environ, settings.role, settings.name, f"{incarnation:016x}")
    listeners = build_listeners(settings.role, exposition, queues, traces)
    stages = await start_stages(settings, scratch, stop)
    engine = await start_engine(settings, models, scratch, listeners, stages)
    facts = await asyncio.to_thread(read_facts, settings, models)
    identity = Identity(
        revision=models.own.revision,
        incarnation=incarnation,
        context=facts.context,
        vocabulary=facts.vocabulary,
        hashes=facts.hashes,
        outputs=facts.outputs,
        sessions=settings.max_running,
        link=settings.link,
        link_dir=settings.link_dir,
        peers=settings.peers,
        model=models.own,
    )
    starts_with_drafts = bool(settings.policy.drafts) and settings.role is Role.TARGET
    awaits_link = starts_with_drafts and settings.link_seconds > 0  # and is to be ready with one
    control = Control(
        role=settings.role,
        model=settings.name,
        threads=settings.threads,
        identity=identity,
        engine=engine,
        availability=Availability(awaits_link, settings.lame_duck_seconds),
        policy=settings.policy,
        on_drain=stop.request,
        undecided=settings.await_arrangement,
    )
    exposition.show(control.state)
    inference: Inference | None = None
    meeting: MeetingPlace | None = None
    if settings.role is Role.TARGET:
        inference = build_inference(settings, models, facts, control, traces, ports.keys)
        control.text = inference.text
        exposition.count(metrics.REQUESTS_REFUSED, inference.rejections)
        InferenceService(inference).register(ports.grpc)
    else:
        meeting = open_meeting(settings)
        peers = beyond_loopback(settings.peers, settings.listen)
        admission = AllowedCaller(None if peers is None else peers.target)
        drafter = DrafterService(identity, engine.send, queues, meeting, admission)
        ports.grpc.add_generic_rpc_handlers((drafter.handler(),))
    health = HealthService()
    health.trouble = engine.heartbeat.trouble
    register_common(ports, settings, control, health)
    http = build_http(settings, ports, control, inference, exposition) if ports.http else None
    return Worker(
        settings, ports.servers, http, engine, control, health, inference, traces, meeting, stages
    )


def build_listeners(
    role: Role, exposition: Exposition, queues: SendQueues, traces: "Traces | None"
) -> Listeners:
    """Return what an engine's handle calls: latencies, traces and the queues of a draft's links."""
    listeners = Listeners(on_peer=queues.send)
    if role is Role.TARGET:
        latencies = Latencies.start(exposition.registry, exposition.common)
        listeners = dataclasses.replace(
            listeners, on_submit=latencies.submitted, on_event=latencies.happened
        )
    if traces is not None:
        listeners = dataclasses.replace(
            listeners,
            on_finished=traces.finished,
            on_session=traces.session_ended,
            on_segment=traces.segment_back,
        )
    return listeners


async def start_stages(
    settings: WorkerSettings, scratch: Path, stop: Shutdown
) -> StageProcesses | None:
    """Start the stages of a pipelined target that run here; None where it has none.

    Where all of them do, they are cut by measured times. Raises as `with_cut`.
    """
    if settings.pipeline.stages == 1:
        return None
    if StagePlace.of(os.environ, settings.pipeline.stages) is None:
        settings = await with_cut(settings, scratch, stop.requested)
    return StageProcesses.start(settings, scratch, os.environ)


async def start_engine(
    settings: WorkerSettings,
    models: Models,
    scratch: Path,
    listeners: Listeners,
    stages: StageProcesses | None = None,
) -> EngineHandle:
    """Start a target's engine in a process of its own, a draft's on a thread of this one."""
    if settings.role is Role.DRAFT:
        return EngineThread(settings, models, listeners)
    prepared = scratch / "models.json"
    write_text(prepared, models.to_json())
    variables = NO_VARIABLES if stages is None else stages.place.variables()
    return await EngineProcess.start(settings, prepared, listeners, variables)


def require_link(settings: WorkerSettings) -> None:
    """Raise `SettingsError` if the settings name what carries links and it cannot be had here."""
    try:
        if settings.link is LinkTransport.SHARED_MEMORY:
            _require_memory(settings.link_dir)
        elif settings.link is LinkTransport.DISTRIBUTED and settings.role is Role.DRAFT:
            distributed.require()  # a target's engine process does
    except LinkBroken as error:
        raise SettingsError(f"settings.link: {settings.link} is not possible: {error}") from None


def _require_memory(folder: str | None) -> None:
    if folder is None:
        raise LinkBroken("settings.link_dir names no folder that both ends of a link see")
    os.close(memory_file.create())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LinkBroken(f"settings.link_dir, {folder}, is no folder to write to")


def open_meeting(settings: WorkerSettings) -> MeetingPlace | None:
    """Open the place at which targets hand memory to a draft; None: gRPC carries all links.

    Raises `SettingsError` if the settings name shared memory and targets cannot be met.
    """
    if settings.link_dir is None or settings.link in DISTANT:
        return None
    try:
        return MeetingPlace.open(Path(settings.link_dir))
    except LinkBroken as error:
        if settings.link is LinkTransport.SHARED_MEMORY:
            raise SettingsError(
                f"settings.link: {settings.link} is not possible: {error}"
            ) from None
        logger.warning("links go over gRPC: %s", error)
        return None


def build_inference(
    settings: WorkerSettings,
    models: Models,
    facts: ModelFacts,
    control: Control,
    traces: "Traces | None",
    keys: ApiKeys | None,
) -> Inference:
    """Return the requests of a target."""

    def build() -> LLTokenizer:
        return tokenizer_of(models.own, facts.vocabulary, facts.end_ids)

    text, sampling = Text.load(models.own.tokenizer), default_sampling(models.own.directory)
    if sampling:
        logger.info("where a request names no sampling: %s", sampling)
    call = call_grammar(text.call_tags, text.shown_tags, facts.vocabulary)
    served = ServedModel(
        name=settings.name,
        revision=models.own.revision,
        context_length=facts.context,
        vocabulary_size=facts.vocabulary,
        has_chat_template=text.has_chat_template,
        default_sampling=sampling,
        end_ids=facts.end_ids,
    )
    return Inference(
        model=served,
        text=text,
        engine=control.engine,
        settings=settings,
        formats=ResponseFormats(build if facts.end_ids else None, call),
        availability=control.availability,
        trace=traces.begin if traces else None,
        keys=keys,
        callers=ONE_KEY if is_loopback(settings.listen) and is_private(settings) else NO_KEY,
    )


def register_common(
    ports: Ports, settings: WorkerSettings, control: Control, health: HealthService
) -> None:
    """Register the services of both roles: control, health and reflection."""
    own = inference_service if settings.role is Role.TARGET else drafter_service
    services: dict[Server, tuple[str, ...]] = {ports.grpc: (own.SERVICE,)}
    server = ports.control or ports.grpc
    ControlService(control, control_admission(settings)).register(server)
    services[server] = (*services.get(server, ()), control_service.SERVICE)
    for server, names in services.items():
        health.register_listed(server, *names)


def build_http(
    settings: WorkerSettings,
    ports: Ports,
    control: Control,
    inference: Inference | None,
    exposition: Exposition,
) -> HttpServer:
    """Return the HTTP server: metrics and health and, for a target, the OpenAI API."""
    assert ports.http is not None
    more = (exposition.route(),)
    if inference is None:
        app = draft_application(lambda: control.ready, more, control.engine.heartbeat.trouble)
    else:
        open_routes = (*more, *page_routes(os.environ))
        hosts, private = settings.allowed_hosts, is_private(settings)
        app = target_application(inference, ports.keys, open_routes, hosts, private)
    return HttpServer(exposition.counting(app), ports.http, settings)


def is_private(settings: WorkerSettings) -> bool:
    """True if HTTP is for this machine alone, without API keys.

    Who asks is then known by nothing but being on this machine, as a web page is that somebody here
    has opened.
    """
    return settings.api_keys_file is None and is_loopback(settings.http_listen)
