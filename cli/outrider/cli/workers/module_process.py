"""A module of the workers' code as a process: options in, JSON objects out, one a line.

The command line imports none of that code. The process ends with this one, however that dies.
"""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import IO, Any

from outrider.cli.failures import BadInput, Failure
from outrider.cli.workers.process import environment

LINE_LIMIT = 1 << 28
"""Bytes of the longest line: all that was found is in one."""


async def records(name: str, command: Sequence[str], install: str) -> AsyncIterator[dict[str, Any]]:
    """Yield what `command` prints until it ends well.

    Raises `BadInput` for an object with the key `error`, `Failure` for one with `missing`, followed
    by what to `install`, and for a bad end; `name` says what ended.
    """
    async with started(command) as process:
        async for line in lines(process):
            yield _record(json.loads(line), install)
        if await process.wait():
            raise Failure(f"{name} ended with status {process.returncode}")


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], stdin: int | None = None, stderr: IO[bytes] | None = None
) -> AsyncIterator[Process]:
    """Start a command that ends with this process, and at the end of the block."""
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--parent-fd", str(reading),
            stdin=stdin, stdout=PIPE, stderr=stderr, limit=LINE_LIMIT,
            pass_fds=(reading,), start_new_session=True, env=environment(),
        )  # fmt: skip
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        os.close(writing)


def lines(process: Process) -> asyncio.StreamReader:
    """Return what a process prints, line by line."""
    assert process.stdout is not None
    return process.stdout


def _record(record: dict[str, Any], install: str) -> dict[str, Any]:
    if "error" in record:
        raise BadInput(record["error"])
    if "missing" in record:
        raise Failure(f"{record['missing']}; {install}")
    return record
