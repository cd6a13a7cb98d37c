"""Supervision of one worker: starts it, waits for its health, starts it again after a crash.

Which drafts a target pairs with, and how many are wanted, is left to `control_loop`, the order of
workers to `local`.
"""

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from grpc.aio import Channel

from outrider.cli.access import OPEN, access_to, current_access
from outrider.cli.failures import BadInput, WorkerFailed, ending
from outrider.cli.machine.ports import GRPC_OPTION, HTTP_OPTION, Port, WantedPorts
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.health import Liveness, Place, Probing, serving
from outrider.cli.workers.process import NOTHING, WORKER, Command, WorkerProcess
from outrider.client import AsyncClient
from outrider.client.errors import ClientError
from outrider.contract.process import ENV_PAGE, EXIT_ADDRESS_IN_USE
from outrider.contract.settings import WorkerSettings
from outrider.contract.state import State
from outrider.operator.plan import PlanOptions, WorkerPlan

PORT_ATTEMPTS = 10
ON_LOOPBACK = WantedPorts()


@dataclass(slots=True)
class Backoff:
    """Doubles from `first` to `ceiling` seconds; begins anew after a healthy life."""

    first: float = 0.2
    """Seconds after the first crash."""
    ceiling: float = 10.0
    """Longest wait, in seconds."""
    healthy: float = 30.0
    """A life of at least so many seconds of health clears what came before."""
    _next: float = 0.0

    def after(self, lived: float) -> float:
        """Return the seconds to wait after a life with `lived` seconds of health."""
        delay = self.first if lived >= self.healthy else max(self._next, self.first)
        self._next = min(2 * delay, self.ceiling)
        return delay


class Launch(NamedTuple):
    """The way in which workers of one run are started."""

    command: Command
    folder: RunFolder
    """Settings files and logs."""
    environment: Mapping[str, str] = NOTHING
    """Variables of this worker alone."""
    probing: Probing = Probing()


class StartOptions(NamedTuple):
    """What a command starts workers with, and where it says so."""

    options: PlanOptions
    progress: StageReporter
    command: Command = WORKER
    folder: Path | None = None
    """Folder of settings and logs; None: `~/.cache/outrider/runs`."""


class Supervisor:
    """One worker of the plan, over all its lives."""

    def __init__(
        self,
        worker: WorkerPlan,
        launch: Launch,
        ports: WantedPorts,
        progress: StageReporter,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when health changes."""
        self.worker = worker
        self.serving = False
        self.restarts = 0
        self.access = OPEN
        self._grpc = Port(ports.grpc, GRPC_OPTION, ports)
        self._http = None if ports.http is None else Port(ports.http, HTTP_OPTION, ports)
        self._control = None if ports.on_loopback else Port(0, GRPC_OPTION, ON_LOOPBACK)
        self._launch = launch
        self._page = {ENV_PAGE: "1" if ports.page else "0"}
        self._progress = progress
        self._changed = changed
        self._backoff = Backoff()
        self._process: WorkerProcess | None = None
        self._watch: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()

    @property
    def wanted(self) -> bool:
        """False while it rests."""
        return self._wanted.is_set()

    @property
    def address(self) -> str:
        """host:port, as it is reached from here; changes only if another process takes the port
        between two lives."""
        return self._grpc.address

    @property
    def http_address(self) -> str:
        """host:port of the OpenAI-compatible API, as it is reached from here; empty: none."""
        return self._http.address if self._http else ""

    def client(self, timeout: float | None = None) -> AsyncClient:
        """A client of this worker's Control, with what its present life wants; `timeout` in
        seconds. On loopback it serves all else, too."""
        address, access = self._control_place()
        return access.client(address, timeout)

    async def state(self, seconds: float) -> State | None:
        """The worker's state; None where it does not answer in so many seconds."""
        async with self.client(seconds) as client:
            try:
                return await client.state()
            except ClientError:
                return None

    def control_channel(self) -> Channel:
        """A channel to its Control alone, as `client` has one."""
        address, access = self._control_place()
        return access.channel(address, ())

    @property
    def settings(self) -> WorkerSettings:
        """What its next life is started with."""
        return dataclasses.replace(
            self.worker.settings,
            listen=self._grpc.listen,
            control_listen=self._control.listen if self._control else "",
            http_listen=self._http.listen if self._http else "",
            link_dir=str(self._launch.folder.links),
        )

    @property
    def pid(self) -> int | None:
        """The process id of the present life."""
        return self._process.pid if self._process else None

    def check_ports(self) -> None:
        """Raise `BadInput` if a port that was asked for is taken, before anything is loaded."""
        for port in self._ports:
            port.refuse_if_lost()

    async def start(self) -> None:
        """Return when the worker serves; raises `WorkerFailed` or `BadInput` (port, key file)."""
        name = self.worker.name
        self._progress.stage(name, "loading")
        try:
            for _ in range(PORT_ATTEMPTS):
                status = await self._live()
                if status is None:
                    return self._set_serving(True)
                if status != EXIT_ADDRESS_IN_USE:
                    break
                self._take_other_ports()
            raise WorkerFailed(name, status or 0, self._launch.folder.log(name))
        finally:
            self._progress.finish(name)

    async def keep(self) -> NoReturn:
        """Start the worker again after each end, with back-off; ends only by cancellation."""
        while True:
            born = time.monotonic()
            status = await self._current.ended()
            self._set_serving(False)
            reason = ending(status)
            lived = time.monotonic() - born
            if not self.wanted:
                await self._wanted.wait()
                reason, lived = "is wanted again", math.inf
            while not self.serving:
                reason, lived = await self._again(reason, lived)

    async def stop(self, grace: float) -> None:
        """End the worker: SIGTERM, then SIGKILL after `grace` seconds."""
        if self._process is not None:
            await self._process.stop(grace)
            self.serving = False

    async def rest(self, grace: float) -> None:
        """End the worker as `stop` does, until `resume`; `keep` then starts no new life."""
        self._wanted.clear()
        await self.stop(grace)

    def resume(self) -> None:
        """Let a resting worker live again."""
        self._wanted.set()

    async def _again(self, reason: str, lived: float) -> tuple[str, float]:
        """One more start; if it fails, how, with no seconds of health."""
        delay = self._backoff.after(lived)
        self._progress.note(f"{self.worker.name} {reason}; starting it again in {delay:.1f} s")
        await asyncio.sleep(delay)
        self.restarts += 1
        try:
            await self.start()
        except WorkerFailed as error:
            return ending(error.exit_status), 0.0
        except (BadInput, OSError) as error:  # a full disk, no descriptor left: that may change
            return f"cannot be started ({error})", 0.0
        self._progress.note(f"{self.worker.name} serves again")
        return "", 0.0

    async def _kill_once_silent(self, process: WorkerProcess) -> None:
        """Kill a worker that hangs, in its start too; return when it has ended. What it is asked is
        whether its engine lives, not whether it is ready."""
        name, failures, said = self.worker.name, 0, ""
        period, seconds, most = self._launch.probing
        ended = asyncio.ensure_future(process.ended())
        try:
            async with Liveness(process.pid, self._control_place) as liveness:
                while failures < most:
                    await asyncio.wait({ended}, timeout=period)
                    if ended.done():
                        return
                    try:
                        failures = failures + 1 if await liveness.hangs(seconds) else 0
                    except Exception as error:  # this process's fault, and not the worker's
                        trouble = f"{name} cannot be asked whether it goes on: {error!r}"
                        if trouble != said:
                            self._progress.note(said := trouble)
            if not ended.done():
                self._progress.note(f"{name} does not go on; it is ended")
                process.kill()
        finally:
            await cancel(ended)

    async def _live(self) -> int | None:
        """Begin a life; return None once it serves, or the exit status if it ends before that."""
        if any(port.taken for port in self._ports):  # a stranger there would answer for us
            return EXIT_ADDRESS_IN_USE
        name, settings = self.worker.name, self.settings
        self.access = access_to(settings)  # anew: keys and certificates may be exchanged meanwhile
        command, folder, environment, _ = self._launch
        file = folder.write(name, settings)
        self._process = await WorkerProcess.start(
            command, settings, file, folder.log(name), {**environment, **self._page}
        )
        self._watch = asyncio.create_task(self._kill_once_silent(self._process))
        ended = asyncio.ensure_future(self._process.ended())
        ready = asyncio.ensure_future(serving(self.address, self.access))
        try:
            await asyncio.wait({ended, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            return ready.result()
        finally:
            await cancel(ended, ready)

    def _control_place(self) -> Place:
        """Where its Control answers, with what its present life wants there."""
        if self._control is not None:
            return Place(self._control.address, OPEN)
        self.access = current_access(self.access, self.worker.settings)
        return Place(self.address, self.access)

    @property
    def _ports(self) -> tuple[Port, ...]:
        return tuple(port for port in (self._grpc, self._http, self._control) if port)

    def _take_other_ports(self) -> None:
        """After a start that found a port taken: all of them, if none is taken any more."""
        taken = [port for port in self._ports if port.taken]
        for port in taken or self._ports:
            port.take_another()

    @property
    def _current(self) -> WorkerProcess:
        assert self._process is not None, "start() comes first"
        return self._process

    def _set_serving(self, serving: bool) -> None:
        self.serving = serving
        self._changed()


async def cancel(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
