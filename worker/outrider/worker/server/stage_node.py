"""`serve` for one stage of a pipelined target: its ports, its thread, its readiness.

Answers no requests; these are the leader's. A stage outlives its groups: when its leader or another
stage is gone it forgets all sequences, and waits for the next group.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import Callable

import grpc

from outrider.contract import metrics
from outrider.contract.addresses import is_loopback
from outrider.contract.process import EXIT_ADDRESS_IN_USE
from outrider.contract.settings import Role, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.server import CountedListener, HttpServer, listen
from outrider.worker.errors import GroupLost, Stopping
from outrider.worker.host.peers import add_port, beyond_loopback
from outrider.worker.host.process import keep_to
from outrider.worker.launch.load_stage import LoadedStage, load_stage
from outrider.worker.launch.load_steps import LoadSteps
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.parallel.placement import leaders_processors
from outrider.worker.parallel.rank_spec import GROUP_LOST
from outrider.worker.parallel.watchdog import Watchdog
from outrider.worker.pipeline.stage_loop import StageLoop
from outrider.worker.pipeline.wire.stage_handler import StageHandler
from outrider.worker.pipeline.wire.stage_service import StageService
from outrider.worker.pipeline.wire.stream import MAX_BYTES
from outrider.worker.server import control_service
from outrider.worker.server.control_service import ControlService, control_admission, control_server
from outrider.worker.server.daemon_work import unless_stopped
from outrider.worker.server.metrics.exposition import Exposition
from outrider.worker.server.readiness import HealthService
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.stage_control import StageControl

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 0.2
THREAD_SECONDS = 2.0
LATE_SECONDS = 30.0
"""Seconds between two lines in the log of a stage that is still loading."""
STREAMS = 16
"""At once; a group has two at most, and others are refused."""
Load = Callable[[WorkerSettings, StagePlace, LoadSteps], LoadedStage]


def load_here(settings: WorkerSettings, place: StagePlace, steps: LoadSteps) -> LoadedStage:
    """Load a stage, and prepare its model before if that was not done."""
    steps.begin("prepares its model")
    return load_stage(settings, place, prepare_models(settings), steps)


class StageNode:
    """The parts of one running stage."""

    def __init__(
        self, settings: WorkerSettings, place: StagePlace, stop: Shutdown, load: Load = load_here
    ) -> None:
        self._settings = settings
        self._load_stage = load
        self._place = place
        self._peers = beyond_loopback(settings.peers, place.address)
        self._steps = LoadSteps(f"stage {place.index} of {settings.pipeline.stages}")
        self._stop = stop
        self.health = HealthService()
        self.control = StageControl(settings, secrets.randbits(64), settings.policy, stop.request)
        self._loop: StageLoop | None = None
        self._thread: threading.Thread | None = None
        self._door = StageHandler(lambda: f"stage {place.index}: it {self._steps.now.doing}")
        self._service: StageService | None = None
        self._server: grpc.aio.Server | None = None
        self._failed = asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        self._watchdog: Watchdog | None = None

    async def run(self) -> int:
        """Load, then take groups until a shutdown is requested; return the exit status.

        Raises `ModelError` and `SettingsError`.
        """
        try:
            await self._listen()
        except RuntimeError as error:
            logger.error("cannot take records at %s: %s", self._place.address, error)
            return EXIT_ADDRESS_IN_USE
        late = asyncio.create_task(self._tell_while_late())
        try:
            loaded = await unless_stopped(self._load, "loading", self._stop.requested)
        except Stopping:
            return 0
        finally:
            late.cancel()
        self._take_groups(loaded)
        await self.health.set_serving(True)
        logger.info("ready: stage %d takes records at %s", self._place.index, self._place.address)
        stopping = asyncio.create_task(self._stop.requested.wait())
        failed = asyncio.create_task(self._failed.wait())
        await asyncio.wait((stopping, failed), return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        stopping.cancel()
        if self._failed.is_set():
            return GROUP_LOST
        self.control.draining = True
        await self._stop.wait_while(lambda: self._in_group)
        return 0

    @property
    def _in_group(self) -> bool:
        """True while a leader needs this stage: it is told to stop at the same time, and ends the
        group once its answers are finished."""
        here = self._loop is not None and self._loop.links is not None
        return here and not self._failed.is_set()

    async def close(self) -> None:
        """End the group, its streams and the thread."""
        self.control.draining = True
        if self._watchdog is not None:
            self._watchdog.close()
        await self.health.set_serving(False)
        if self._service is not None:
            self._service.close()
        if self._server is not None:
            await self._server.stop(CLOSE_SECONDS)
        if self._loop is not None and self._thread is not None:
            self._loop.stop()
            await asyncio.to_thread(self._thread.join, THREAD_SECONDS)
            if self.control.loaded is not None and not self._thread.is_alive():
                await asyncio.to_thread(self.control.loaded.close)

    def _load(self) -> LoadedStage:
        keep_to(leaders_processors(self._settings))
        return self._load_stage(self._settings, self._place, self._steps)

    async def _tell_while_late(self) -> None:
        """Say again and again what is still done, and where it stands."""
        while True:
            await asyncio.sleep(LATE_SECONDS)
            logger.warning("%s is not ready: it %s", self._steps.name, self._steps.now)

    async def _listen(self) -> None:
        """Serve its address: until it is loaded, who begins a group learns what it does. Raises
        `RuntimeError` if the port is taken, and `SettingsError`."""
        options = (
            ("grpc.so_reuseport", int(self._place.reserved)),
            ("grpc.max_receive_message_length", MAX_BYTES),
        )
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=STREAMS)
        server.add_generic_rpc_handlers((self._door,))
        self.health.register(server)  # here it is asked whether it lives
        address = self._place.address  # on loopback there alone, else on all interfaces
        bound = address if is_loopback(address) else f"[::]:{address.rpartition(':')[2]}"
        add_port(server, bound, self._peers)
        await server.start()
        self._server = server

    def _take_groups(self, loaded: LoadedStage) -> None:
        """Start the thread, and serve groups."""
        watchdog = self._watchdog = Watchdog(self._fail)
        watchdog.set_limit(loaded.pass_seconds)
        loop = self._loop = StageLoop(loaded.make_stage, watchdog)
        self._thread = threading.Thread(target=self._compute, args=(loop,), daemon=True)
        self._thread.start()
        next_address = self._place.next or ""
        self._service = StageService(
            loaded.identity, loaded.limits, next_address, loop.attach, self._peers
        )
        self._door.open(self._service)
        self.control.loaded, self.control.loop = loaded, loop

    def _compute(self, loop: StageLoop) -> None:
        keep_to(leaders_processors(self._settings))
        try:
            loop.run()
        except GroupLost as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        """End the group and then this process, which can run no pass any more; on any thread."""
        logger.error("this stage ends: %s", reason)
        if self._loop is not None and self._loop.links is not None:
            self._loop.links.close(f"it ends: {reason}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._event_loop.call_soon_threadsafe(self._failed.set)


async def serve_stage(
    settings: WorkerSettings, place: StagePlace, parent: int | None, load: Load = load_here
) -> int:
    """Run one stage, which `load` loads, until a shutdown is requested; return the exit status.

    `parent` is as for `server.serve`. Raises `ModelError` and `SettingsError`.
    """
    try:
        server = control_server(settings, settings.control_listen or settings.listen)
        listener = listen(settings.http_listen) if settings.http_listen else None
    except (RuntimeError, OSError) as error:
        logger.error("cannot listen on %s: %s", settings.addresses, error)
        return EXIT_ADDRESS_IN_USE
    stop = Shutdown.install(parent, settings.grace_seconds)
    node = StageNode(settings, place, stop, load)
    ControlService(node.control, control_admission(settings)).register(server)
    node.health.register_listed(server, control_service.SERVICE)
    await node.health.set_serving(False)
    await server.start()
    http = start_http(settings, node, listener) if listener is not None else None
    try:
        return await node.run()
    finally:
        await node.close()
        if http is not None:
            await http.close()
        await server.stop(CLOSE_SECONDS)


def start_http(settings: WorkerSettings, node: StageNode, listener: CountedListener) -> HttpServer:
    """Start the HTTP server: health, readiness and metrics."""
    exposition = Exposition(Role.TARGET, settings.name, metrics.OF_STAGES)
    exposition.show(node.control.state)
    app = draft_application(lambda: node.control.ready, (exposition.route(),))
    http = HttpServer(exposition.counting(app), listener, settings)
    http.start()
    return http
