"""Engine process: a target's engine in a process of its own, behind a socket pair.

Serving text and many clients must not cost the engine's loop the interpreter lock.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outrider.contract.settings import WorkerSettings
from outrider.worker.engine import socket_channel
from outrider.worker.engine.handle import EngineHandle, Listeners

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class EngineProcess(EngineHandle):
    """`python -m outrider.worker engine` with one end of a socket pair."""

    def __init__(self, process: asyncio.subprocess.Process, listeners: Listeners) -> None:
        super().__init__(listeners)
        self.process = process
        self.heartbeat.process = process.pid
        self._channel: socket_channel.AsyncChannel
        self._watcher: asyncio.Task[None]

    @classmethod
    async def start(
        cls,
        settings: WorkerSettings,
        prepared: Path,
        listeners: Listeners,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> "EngineProcess":
        """Start the process; `prepared` is the file that names the folders of its models.

        `variables`: of its environment, beside this process's own.
        """
        ours, theirs = socket_channel.pair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "outrider.worker", "engine"),
                *("--channel", str(theirs.fileno()), "--prepared", str(prepared)),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **variables},
            )
        assert process.stdin is not None
        process.stdin.write(settings.to_json().encode())
        process.stdin.close()
        engine = cls(process, listeners)
        await engine.connect(ours)
        return engine

    async def connect(self, end: socket.socket) -> None:
        """Take the engine's messages from now on, by one end of `pair()`."""
        self._channel = await socket_channel.AsyncChannel.open(end, self.deliver)
        self._watcher = asyncio.create_task(self._watch(), name="engine's end")

    def send(self, message: Any) -> None:
        """Queue a message on the socket."""
        self._channel.send(message)

    async def close(self) -> None:
        """Close the socket, at which the process ends; kill it if it does not."""
        self._channel.close()
        try:
            await asyncio.wait_for(self.process.wait(), CLOSE_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self._watcher.cancel()

    async def _watch(self) -> None:
        """End every open answer once the engine is gone."""
        try:
            await self._channel.closed.wait()
            status = await self.process.wait()
            level = logging.ERROR if status else logging.INFO  # it ends well where it is told to
            logger.log(level, "the engine process is gone (exit status %d)", status)
        finally:
            self.end()
