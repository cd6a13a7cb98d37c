"""`outrider simulate`: starts the simulator as a process, and shows what it found.

The simulator runs the workers' schedulers, which this command line does not import.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.cli.failures import BadInput, Failure
from outrider.cli.progress import reporter

LINE_LIMIT = 1 << 28
"""Bytes of the longest line: series and events of all cells are in it."""
SIMULATOR = (sys.executable, "-P", "-m", "outrider.simulator")
MISSING = "the simulator runs the workers' code; install outrider[cli,operator,worker]"


async def simulate(file: Path, seed: int | None, processes: int | None) -> dict[str, Any]:
    """Return what a simulation came to; raises `BadInput` for a file that cannot be used."""
    options = [str(file)]
    options += [] if seed is None else ["--seed", str(seed)]
    options += [] if processes is None else ["--processes", str(processes)]
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *SIMULATOR, *options, "--parent-fd", str(reading),
            stdout=PIPE, limit=LINE_LIMIT, pass_fds=(reading,), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        return await _result(process, file)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        os.close(writing)


async def _result(process: asyncio.subprocess.Process, file: Path) -> dict[str, Any]:
    progress, found = reporter(), None
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            record = json.loads(line)
            if "error" in record:
                raise BadInput(record["error"])
            if "missing" in record:
                raise Failure(f"{record['missing']}; {MISSING}")
            if "stage" in record:
                progress.stage(file.name, record["stage"], record["done"], record["total"])
            else:
                found = record
    finally:
        progress.clear()
    if await process.wait() or not isinstance(found, dict):
        raise Failure(f"the simulator ended with status {process.returncode}")
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the summary as a table, then what the operator did."""
    console = Console()
    table = Table(box=SIMPLE_HEAD, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, words in lines(found["summary"]):
        table.add_row(name, words)
    console.print(table)
    for number, cell in enumerate(found["cells"]):
        for event in cell["events"]:
            console.print(
                f"cell {number} {_clock(event['second'])} {event['sentence']}",
                highlight=False, markup=False, soft_wrap=True,
            )  # fmt: skip


def lines(summary: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a line for each figure; nested ones are named by their path."""
    found = []
    for key, value in summary.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            found += lines(value, f"{name}, ")
        else:
            found.append((name, "-" if value is None else f"{value:,.4g}"))
    return found


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
