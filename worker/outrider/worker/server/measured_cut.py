"""The cut of a target whose stages all run here: as given, else by measured times.

Leaves measuring to `python -m outrider.worker cut`, a process that loads what this one need not.
"""

import asyncio
import dataclasses
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from outrider.contract.files import write_text
from outrider.contract.settings import WorkerSettings
from outrider.worker.errors import ModelError
from outrider.worker.server.daemon_work import unless_stopped

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "outrider.worker", "cut")


async def with_cut(settings: WorkerSettings, scratch: Path, stop: asyncio.Event) -> WorkerSettings:
    """Return settings that name the layers of each stage; log which, and why.

    Raises `ModelError` if nothing can be measured, `Stopping` once `stop` is set.
    """
    pipeline = settings.pipeline
    if pipeline.cut:
        logger.info("cut into %s layers, as given", " + ".join(map(str, pipeline.cut)))
        return settings
    file = scratch / "cut.json"
    write_text(file, settings.to_json())
    status, output = await run_until((*COMMAND, "--settings", str(file)), stop)
    if status != 0:
        raise ModelError(f"the cut over {pipeline.stages} stages cannot be measured")
    layers, words = read_cut(output)
    logger.info("%s", words)
    return dataclasses.replace(settings, pipeline=dataclasses.replace(pipeline, cut=layers))


async def run_until(command: tuple[str, ...], stop: asyncio.Event) -> tuple[int, bytes]:
    """Run a command that takes `--parent-fd`; return its exit status and what it printed.

    It is over when this returns or raises: `Stopping` once `stop` is set.
    """
    lifeline, own_end = os.pipe()  # the other end closes with this process
    try:
        process = subprocess.Popen(
            (*command, "--parent-fd", str(lifeline)),
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        try:
            output, _ = await unless_stopped(process.communicate, "measuring", stop)
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
    finally:
        os.close(lifeline)
        os.close(own_end)
    return process.returncode, output


def read_cut(output: bytes) -> tuple[tuple[int, ...], str]:
    """Read the layers of each stage and the reason, as `cut` prints them; raises `ModelError`."""
    try:
        found = json.loads(output)
        return tuple(int(count) for count in found["cut"]), str(found["words"])
    except (ValueError, TypeError, KeyError):
        told = output[:200].decode(errors="replace")
        raise ModelError(f"the measured cut cannot be read: {told!r}") from None
