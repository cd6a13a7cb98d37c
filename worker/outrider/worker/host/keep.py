"""`keep`: a worker that is started again whenever it ends, by a process that stays.

For a draft in its target's pod. Kubernetes calls a pod unready while one of its containers is down,
waits to be started again, or has a startup probe to pass; a draft that did any of that would take
its target from every client. Here the container stays, and its first process does for the draft
what a kubelet does for others: asks after its health, ends it where it no longer answers, and
starts it again with a back-off.
"""

import asyncio
import contextlib
import http.client
import logging
import math
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
CANNOT_START = os.EX_OSERR
"""Exit status of a life that did not begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperTimes:
    """Seconds between starts, and between questions."""

    first: float = 1.0
    """Before the first start anew; doubles up to `last`."""
    last: float = 60.0
    healthy: float = 60.0
    """A life of at least so many seconds clears what came before."""
    period: float = 10.0
    """Seconds between two questions about the worker's health."""
    loading: float = 1800.0
    """Longest time from its start to its first answer."""
    silent: float = 30.0
    """Longest time between two answers afterwards."""
    grace: float = math.inf
    """Seconds from the request to stop to the end by force."""


@dataclass(slots=True)
class Keeper:
    """One worker, over all its lives."""

    command: tuple[str, ...]
    """Starts the worker; gets `--parent-fd`, a descriptor that ends when this process does."""
    is_alive: Callable[[], bool] | None
    """Asks after its health; may block for some seconds. None: nobody asks."""
    rhythm: KeeperTimes = KeeperTimes()
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    name: str = "the worker"
    environment: Mapping[str, str] | None = None
    """Environment of the worker; None: this process's own."""
    process: Process | None = None
    """Process of the worker's present life, or of the last one."""

    async def run(self) -> int:
        """Keep the worker running until SIGTERM or SIGINT, which ends it too; return 0.

        For the first process of a container: it inherits, and collects, what the worker leaves.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        return await self.keep(after=lambda status: reap())

    async def keep(self, after: Callable[[int], None]) -> int:
        """Keep the worker running until `stop` is set, which ends it too; return 0.

        `after` is called after each life, with its exit status; negative: the signal.
        """
        loop = asyncio.get_running_loop()
        lifeline, _ = os.pipe()  # the other end closes with this process
        delay = self.rhythm.first
        while True:
            began = loop.time()
            status = await self._live(lifeline)
            after(status)
            lived = loop.time() - began
            delay = self.rhythm.first if lived >= self.rhythm.healthy else delay
            if self.stop.is_set():
                return 0
            words = "%s ended (status %d) after %.0f s and starts again in %.1f s"
            logger.warning(words, self.name, status, lived, delay)
            if await self._stops_within(delay):
                return 0
            delay = min(2 * delay, self.rhythm.last)

    async def _live(self, lifeline: int) -> int:
        """Run one life of the worker; return its exit status, negative: the signal."""
        try:
            process = self.process = await asyncio.create_subprocess_exec(
                *self.command,
                "--parent-fd",
                str(lifeline),
                pass_fds=[lifeline],
                stdin=asyncio.subprocess.DEVNULL,
                env=self.environment,
            )
        except OSError as error:  # no memory for it, or too many processes: that may change
            logger.error("%s cannot be started: %s", self.name, error)
            return CANNOT_START
        watches = [asyncio.create_task(self._end(process))]
        if self.is_alive is not None:
            watches.append(asyncio.create_task(self._watch(process, self.is_alive)))
        try:
            return await process.wait()
        finally:
            for watch in watches:
                watch.cancel()

    async def _watch(self, process: Process, is_alive: Callable[[], bool]) -> None:
        """Kill a worker that has not answered for too long."""
        loop, rhythm = asyncio.get_running_loop(), self.rhythm
        until = loop.time() + rhythm.loading
        while loop.time() < until:
            await asyncio.sleep(rhythm.period)
            if await asyncio.to_thread(is_alive):
                until = loop.time() + rhythm.silent
        logger.error("%s does not answer any more", self.name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def _end(self, process: Process) -> None:
        """Pass on the request to stop."""
        await self.stop.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            if self.rhythm.grace < math.inf:
                await asyncio.sleep(self.rhythm.grace)
                process.kill()

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        return self.stop.is_set()


def answers(address: str) -> bool:
    """Return whether `/healthz` at an address (host:port) of this machine answers 200.

    Asked without a proxy, whatever the environment names: one would answer for it, or refuse.
    """
    port = int(address.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def reap() -> None:
    """Collect processes that the worker left behind: a container's first process inherits them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
