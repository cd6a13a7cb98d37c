"""Preparation of models: a worker fetches and converts its weights, with progress shown.

Reads the JSON lines of `outrider.worker prepare`; knows nothing of weights.
"""

import json
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Mapping
from typing import Any

from outrider.cli.failures import Failure, WorkerFailed
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import Reporter
from outrider.cli.workers.module_process import lines, started
from outrider.cli.workers.process import Command
from outrider.contract.settings import WorkerSettings


async def prepare(
    name: str, settings: WorkerSettings, command: Command, folder: RunFolder, progress: Reporter
) -> Mapping[str, Any]:
    """Prepare the models of one worker; return what it says of them in the end.

    Raises `Failure` with the worker's own words.
    """
    record: dict[str, Any] = {}
    try:
        async for record in records("prepare", name, settings, command, folder):
            if "stage" in record:
                progress.stage(
                    name, record["stage"], record.get("done") or 0, record.get("total") or 0
                )
    finally:
        progress.finish(name)
    return record


async def records(
    verb: str, name: str, settings: WorkerSettings, command: Command, folder: RunFolder
) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects that `command verb` prints, one a line, until it ends well.

    An object with the key `error` is raised as `Failure`, another bad end as `WorkerFailed`.
    """
    file, log = folder.write(name, settings), folder.log(name)
    asked = (*command, verb, "--settings", str(file))
    with log.open("ab") as errors:
        async with started(asked, stdin=DEVNULL, stderr=errors) as process:
            async for line in lines(process):
                yield _record(name, line)
            if status := await process.wait():
                raise WorkerFailed(name, status, log)


def _record(name: str, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise Failure(f"{name} printed {line[:80]!r} where a JSON object was expected.")
    if "error" in record:
        raise Failure(f"{name}: {record['error']}")
    return record
