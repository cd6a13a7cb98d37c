"""A server over HTTP as a side of a benchmark: started, awaited, and ended."""

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx

from bench.sides.peer import DoesNotRun


@contextlib.asynccontextmanager
async def served(
    command: Sequence[str | Path],
    port: int,
    ready: str,
    seconds: float,
    output: int | None = DEVNULL,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a server on a port of loopback, once GET `ready` succeeds, within so many seconds.

    `output`: where it writes; None: where this process does. Raises `DoesNotRun` if it ends before.
    """
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=output, stderr=output)
    try:
        base = f"http://127.0.0.1:{port}"
        once = httpx.Limits(max_keepalive_connections=0)  # servers close connections that rest
        async with httpx.AsyncClient(
            base_url=base, timeout=600.0, trust_env=False, limits=once
        ) as client:
            await _until_ready(client, process, ready, seconds)
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_ready(
    client: httpx.AsyncClient, process: asyncio.subprocess.Process, ready: str, seconds: float
) -> None:
    async with asyncio.timeout(seconds):
        while process.returncode is None:
            with contextlib.suppress(httpx.TransportError):  # it does not listen yet
                if (await client.get(ready)).is_success:
                    return
            await asyncio.sleep(0.1)
    raise DoesNotRun(f"the server ended with exit status {process.returncode}")
