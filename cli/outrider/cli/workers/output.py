"""Processes of the workers' code that run to their end and print JSON objects, one a line.

The command line imports none of that code. A process ends with this one, however that dies.
"""

import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import IO, Any

from outrider.cli.failures import BadInput, Failure, WorkerFailed
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.amounts import duration
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.process import Command, spawn
from outrider.contract.settings import WorkerSettings

LINE_LIMIT = 1 << 28
"""Bytes of the longest line: all that was found is in one."""


async def result_of(
    what: str, command: Sequence[str], install: str, progress: StageReporter, name: str
) -> dict[str, Any]:
    """Show the stages and notes that `command` prints, under `name`; return its last object.

    Raises `BadInput` for an object with the key `error`, `Failure` for one with `missing`, followed
    by what to `install`, and for a bad end; `what` says what ended.
    """
    found: dict[str, Any] = {}
    try:
        async with started(command) as process:
            async for record in _records(what, process):
                if "error" in record:
                    raise BadInput(record["error"])
                if "missing" in record:
                    raise Failure(f"{record['missing']}; {install}")
                found = _shown(record, progress, name) or found
            if await process.wait():
                raise Failure(f"{what} ended with status {process.returncode}")
    finally:
        progress.finish(name)
    if not found:
        raise Failure(f"{what} ended without a result")
    return found


async def ask_worker(
    verb: str,
    name: str,
    settings: WorkerSettings,
    command: Command,
    folder: RunFolder,
    progress: StageReporter | None = None,
) -> dict[str, Any]:
    """Do `verb`, such as `prepare`, with the models of a worker; return the last object printed.

    Stages are shown if there is a `progress`. Raises `Failure` with the worker's own words, and
    `WorkerFailed` for a bad end.
    """
    found: dict[str, Any] = {}
    file, log = folder.write(name, settings), folder.log(name)
    try:
        with log.open("ab") as errors:
            asked = (*command, verb, "--settings", str(file))
            async with started(asked, errors) as process:
                async for record in _records(name, process):
                    if "error" in record:
                        raise Failure(f"{name}: {record['error']}")
                    found = _shown(record, progress, name) or found
                if status := await process.wait():
                    raise WorkerFailed(name, status, log)
    finally:
        if progress is not None:
            progress.finish(name)
    return found


def _shown(record: dict[str, Any], progress: StageReporter | None, name: str) -> dict[str, Any]:
    """Show a record if it is a stage or a note; return any other."""
    if "stage" in record:
        left = record.get("seconds_left")
        words = "" if left is None else f", {duration(left)} left"
        done, total = record.get("done") or 0, record.get("total") or 0
        if progress is not None:
            progress.stage(name, f"{record['stage']}{words}", done, total)
    elif "note" in record:
        if progress is not None:
            progress.note(record["note"])
    else:
        return record
    return {}


async def _records(name: str, process: Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise Failure(f"{name} printed {line[:80]!r} where a JSON object was expected.")
        yield record


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], stderr: IO[bytes] | None = None
) -> AsyncIterator[Process]:
    """Start a command that ends with this process, and at the end of the block."""
    process, writing = await spawn(command, stdout=PIPE, stderr=stderr, limit=LINE_LIMIT)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        os.close(writing)
