"""One life of a worker process: started, watched, stopped.

Every process of a worker, also one that only prepares or measures, holds the reading end of a pipe
and exits when it ends, so that none outlives this process, however that dies. Restarting is the
supervisor's.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from outrider.cli.machine.run_dir import told_cache
from outrider.contract.settings import WorkerSettings

Command = tuple[str, ...]
WORKER: Command = (sys.executable, "-P", "-m", "outrider.worker")
"""Starts a worker; the verb and its options follow."""
NOTHING: Mapping[str, str] = MappingProxyType({})
COMPILED = "NUMBA_CACHE_DIR"
"""Environment variable: where compiled code is kept."""


def environment(own: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """The environment of a worker, with its own variables: logs are written at once, and compiled
    code is kept where all else is."""
    given = {} if COMPILED in os.environ else {COMPILED: str(told_cache() / "compiled")}
    return {**os.environ, "PYTHONUNBUFFERED": "1", **given, **own}


async def spawn(
    command: Sequence[str], own: Mapping[str, str] = NOTHING, **streams: Any
) -> tuple[asyncio.subprocess.Process, int]:
    """Start a command in a process group of its own, which ends with this process; return the end
    of a pipe, too, by which it knows."""
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--parent-fd", str(reading), stdin=DEVNULL, pass_fds=(reading,),
            start_new_session=True, env=environment(own), **streams,
        )  # fmt: skip
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return process, writing


class WorkerProcess:
    """A worker that runs in a process group of its own; Ctrl-C reaches it only through us."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline

    @classmethod
    async def start(
        cls,
        command: Command,
        settings: WorkerSettings,
        file: Path,
        log: Path,
        own: Mapping[str, str] = NOTHING,
    ) -> Self:
        """Start `command serve` with the settings in `file`; output is appended to `log`.

        `own`: variables of its environment that others have not.
        """
        asked = (*command, "serve", "--settings", str(file))
        with log.open("ab") as output:
            return cls(*await spawn(asked, own, stdout=output, stderr=output))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def ended(self) -> int:
        """Wait for the end; return the exit status, or the negative number of the signal."""
        status = await self._process.wait()
        self._release()
        return status

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL to the whole group if it still runs after `grace` seconds."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
            self.kill()
        await self.ended()

    def kill(self) -> None:
        """SIGKILL to the worker and to every process that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _release(self) -> None:
        """After the end: what the worker started goes with it, and the pipe is closed once."""
        if self._lifeline >= 0:
            self.kill()
            os.close(self._lifeline)
            self._lifeline = -1
