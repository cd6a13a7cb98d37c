"""The life of a worker's server process: serve, become ready, drain, close.

Leaves the construction of its parts to `build`, and every decision about tokens to the engine.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from outrider.contract.settings import Role, WorkerSettings
from outrider.worker.api.http.server import HttpServer
from outrider.worker.api.inference import Inference
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.link.meeting import MeetingPlace
from outrider.worker.messages import Drain
from outrider.worker.server.control import Control
from outrider.worker.server.readiness import HealthService, wait_for_first_link
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.stage_processes import StageProcesses

if TYPE_CHECKING:
    from outrider.worker.server.tracing.traces import Traces

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 0.2


@dataclass(slots=True)
class Worker:
    """The parts of one running worker."""

    settings: WorkerSettings
    servers: tuple[grpc.aio.Server, ...]
    """Servers for clients or peers, and for Control where it has its own."""
    http: HttpServer | None
    engine: EngineHandle
    control: Control
    health: HealthService
    inference: Inference | None
    """A target's."""
    traces: "Traces | None"
    meeting: MeetingPlace | None = None
    """A draft's, if it shares memory with targets."""
    stages: StageProcesses | None = None
    """Stage processes of a pipelined target."""

    async def start(self) -> None:
        """Begin to serve; health is NOT_SERVING until the engine is ready."""
        await self.health.set_serving(False)
        for server in self.servers:
            await server.start()
        if self.http is not None:
            self.http.start()

    async def run(self, stop: Shutdown) -> int:
        """Serve until a shutdown is requested or the engine dies; return the exit status."""
        stopping = asyncio.create_task(stop.requested.wait())
        gone = asyncio.create_task(self._ends())
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
        if gone.done():
            return gone.result()
        await self.drain(stop)
        return 1 if self.engine.gone.is_set() else 0

    async def _ends(self) -> int:
        """Return the exit status with which a worker ends by itself: its engine is gone, or its
        stages cannot start."""
        gone = asyncio.ensure_future(self.engine.gone.wait())
        failed = asyncio.Future[int]() if self.stages is None else self.stages.failed
        either: set[asyncio.Future[Any]] = {gone, failed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return failed.result() if failed.done() else 1
        finally:
            gone.cancel()

    async def become_ready(self) -> None:
        """Wait for the engine, then serve; raise `ModelError` if it cannot start."""
        ready = await self.engine.ready
        if self.stages is not None:
            self.stages.follow(up=True)
        self.control.send_drafts()
        if self.control.availability.linking:
            await wait_for_first_link(lambda: self.control.links, self.settings.link_seconds)
            self.control.availability.linking = False
        await self.health.set_serving(self.control.ready)
        logger.info("ready: %s weights, %d sessions", ready.dtype, ready.sessions)
        while self.stages is not None:
            await self.engine.stages_changed.wait()
            self.engine.stages_changed.clear()
            if self.engine.stages is not None:
                self.stages.follow(self.engine.stages.up)
            await self.health.set_serving(self.control.ready)

    async def drain(self, stop: Shutdown) -> None:
        """Be not ready at once, refuse new work after the lame-duck time, and wait for requests, or
        a draft's sessions, as long as there is time and an engine."""
        availability, gone = self.control.availability, self.engine.gone
        availability.drain()
        if self.engine.ready.done():  # else nobody was ever led here
            await stop.wait_while(lambda: not (availability.refusing or gone.is_set()))
        await self.health.set_serving(False)
        if self.http is not None and self.settings.lame_duck_seconds:
            self.http.send_clients_away()  # gRPC has let none of its connections grow so old
        if self.settings.role is Role.DRAFT:
            self.engine.send(Drain())
        await stop.wait_while(lambda: self.busy)
        if self.inference is not None:
            self.inference.end_open()

    @property
    def busy(self) -> bool:
        """True while requests run, or a draft's sessions are not closed yet."""
        if self.engine.gone.is_set():
            return False
        if self.settings.role is Role.TARGET:
            return bool(self.engine.answers)
        return self.engine.ready.done() and not self.engine.report.draining

    async def close(self) -> None:
        """End links, streams and the engine."""
        if self.http is not None:
            await self.http.close()
        await asyncio.gather(*(server.stop(grace=CLOSE_SECONDS) for server in self.servers))
        await self.engine.close()
        if self.stages is not None:
            await self.stages.close()
        if self.meeting is not None:
            self.meeting.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
