"""A module of the workers' code as a process: options in, JSON objects out, one a line.

The command line imports none of that code. The process ends with this one, however that dies.
"""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from typing import Any

from outrider.cli.failures import BadInput, Failure

LINE_LIMIT = 1 << 28
"""Bytes of the longest line: all that was found is in one."""


async def records(name: str, command: Sequence[str], install: str) -> AsyncIterator[dict[str, Any]]:
    """Yield what `command` prints until it ends well.

    Raises `BadInput` for an object with the key `error`, `Failure` for one with `missing`, followed
    by what to `install`, and for a bad end; `name` says what ended.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--parent-fd", str(reading),
            stdout=PIPE, limit=LINE_LIMIT, pass_fds=(reading,), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            yield _record(json.loads(line), install)
        if await process.wait():
            raise Failure(f"{name} ended with status {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        os.close(writing)


def _record(record: dict[str, Any], install: str) -> dict[str, Any]:
    if "error" in record:
        raise BadInput(record["error"])
    if "missing" in record:
        raise Failure(f"{record['missing']}; {install}")
    return record
