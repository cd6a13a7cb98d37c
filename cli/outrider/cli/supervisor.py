"""Keeps one worker alive: starts it, waits for its health, starts it again after a crash.

Which drafts a target pairs with is `membership`'s; the order of workers is `local`'s.
"""

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from outrider.cli import health
from outrider.cli.backoff import Backoff
from outrider.cli.failures import BadInput, WorkerFailed, ending
from outrider.cli.folder import RunFolder
from outrider.cli.process import Command, WorkerProcess
from outrider.cli.progress import Reporter
from outrider.contract.exits import ADDRESS_IN_USE
from outrider.operator.plan import WorkerPlan

HOST = "127.0.0.1"
PORT_ATTEMPTS = 10


def is_taken(port: int) -> bool:
    """Whether somebody listens on a loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Supervisor:
    """One worker of the plan, over all its lives."""

    def __init__(
        self,
        worker: WorkerPlan,
        *,
        port: int,
        command: Command,
        folder: RunFolder,
        progress: Reporter,
        changed: Callable[[], None],
        choose_port: Callable[[], int] = free_port,
    ) -> None:
        """`port` 0 leaves the choice to `choose_port`; `changed` is called when health changes."""
        self.worker = worker
        self.serving = False
        self.restarts = 0
        self._fixed = port != 0
        self._port = port or choose_port()
        self._command = command
        self._folder = folder
        self._progress = progress
        self._changed = changed
        self._choose_port = choose_port
        self._backoff = Backoff()
        self._process: WorkerProcess | None = None

    @property
    def address(self) -> str:
        """host:port; changes only if another process takes the port between two lives."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the present life."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Returns when the worker serves; raises `WorkerFailed` or `BadInput` (port taken)."""
        name = self.worker.name
        self._progress.stage(name, "loading")
        try:
            for _ in range(PORT_ATTEMPTS):
                status = await self._live()
                if status is None:
                    return self._set_serving(True)
                if status != ADDRESS_IN_USE:
                    break
                if self._fixed:
                    raise BadInput(f"{self.address} is in use; choose another with --grpc-port.")
                self._port = self._choose_port()
            raise WorkerFailed(name, status or 0, self._folder.log(name))
        finally:
            self._progress.finish(name)

    async def keep(self) -> NoReturn:
        """Starts the worker again after each end, with back-off; ends only by cancellation."""
        while True:
            born = time.monotonic()
            status = await self._current.ended()
            self._set_serving(False)
            reason = ending(status)
            lived = time.monotonic() - born
            while not self.serving:
                reason, lived = await self._again(reason, lived)

    async def stop(self, grace: float) -> None:
        """Ends the worker: SIGTERM, then SIGKILL after `grace` seconds."""
        if self._process is not None:
            await self._process.stop(grace)
            self.serving = False

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
        except BadInput:
            return "found its port taken", 0.0
        self._progress.note(f"{self.worker.name} serves again")
        return "", 0.0

    async def _live(self) -> int | None:
        """Begins a life; None once it serves, or the exit status if it ends before that."""
        if is_taken(self._port):  # a stranger's server there would answer for its own health
            return ADDRESS_IN_USE
        name = self.worker.name
        settings = dataclasses.replace(self.worker.settings, listen=self.address)
        file = self._folder.write(name, settings)
        self._process = await WorkerProcess.start(
            self._command, settings, file, self._folder.log(name)
        )
        ended = asyncio.ensure_future(self._process.ended())
        ready = asyncio.ensure_future(health.serving(self.address))
        try:
            await asyncio.wait({ended, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            return ready.result()
        finally:
            await cancel(ended, ready)

    @property
    def _current(self) -> WorkerProcess:
        assert self._process is not None, "start() comes first"
        return self._process

    def _set_serving(self, serving: bool) -> None:
        self.serving = serving
        self._changed()


async def cancel(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks and waits until they have ended."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
