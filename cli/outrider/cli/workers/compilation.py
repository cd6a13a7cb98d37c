"""Compilation of kernels beside the preparation of models, by a process on each of two processors.

An engine compiles what it finds missing, so nothing depends on it; but an engine is one process,
which starts when its model is ready. Done once for each state of the sources: a small file says so.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outrider.cli.failures import Failure
from outrider.cli.machine.info import machine
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.prepared_models import sources
from outrider.cli.workers.process import COMPILED, Command
from outrider.cli.workers.supervisor import cancel
from outrider.contract import processors
from outrider.contract.files import user_cache
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings

NAME = "kernels"
"""Name of this work in progress shown and in logs."""
STAGE = "compiling, first start only"
"""Stage of the compilation, as progress shows it."""
SIGNATURES = 340
"""Compiled functions, by the types of their arguments, of a pair with int8 weights: about as many
(337; Zen 4, 2026-11-26) as any pair has, and what progress is shown as a share of."""
COUNTED_SECONDS = 1.0
"""Seconds between two counts."""
ISA = "OUTRIDER_ISA"
"""Environment variable: the instruction set that is compiled for."""


async def compile_kernels(
    workers: Iterable[WorkerSettings], command: Command, folder: RunFolder, progress: StageReporter
) -> None:
    """Compile what these workers run, unless that was done before or there is one processor."""
    shares = shares_of(list(workers))
    try:
        left = {marker(share, command): share for share in shares if not is_done(share, command)}
        if not left or processors.count() == 1:
            return
        counting = asyncio.ensure_future(_count(progress))
        try:
            async with asyncio.TaskGroup() as group:
                for file, share in left.items():
                    group.create_task(_compile(share, file, command, folder))
        finally:
            await cancel(counting)
    except* (Failure, OSError) as failed:
        progress.note(f"Workers compile their kernels themselves: {failed.exceptions[0]}")
    finally:
        progress.finish(NAME)


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do `work` beside the block, and to its end unless the block fails."""
    task = asyncio.ensure_future(work)
    try:
        yield
        await task
    finally:
        await cancel(task)


def shares_of(workers: Sequence[WorkerSettings]) -> Iterator[WorkerSettings]:
    """Yield shares of the work, two at least where a target has one rank: one without a draft,
    which begins with passes, and one with a draft, which begins with schedulers.

    Where no worker has a draft, one is compiled for all the same: a later draft finds its kernels.
    """
    for settings in workers:
        if settings.colocated is not None:
            yield replace(settings, colocated=None)
        yield settings
    if not any(settings.has_draft for settings in workers):
        for settings in workers:
            if settings.ranks == 1:
                yield WorkerSettings(
                    role=Role.DRAFT,
                    name=settings.name,
                    model=settings.model,
                    device=settings.device,
                )


def is_done(share: WorkerSettings, command: Command) -> bool:
    """True if it was compiled from these very sources, as it is or with AUTO in place of int8:
    AUTO compiles int8 too."""
    inside = share.colocated and auto(share.colocated)
    by_auto = replace(share, model=auto(share.model), colocated=inside)
    return marker(share, command).exists() or marker(by_auto, command).exists()


def auto(model: ModelSettings) -> ModelSettings:
    """Return a model with AUTO in place of int8, which is compiled for AUTO too."""
    return replace(model, dtype=Dtype.AUTO) if model.dtype is Dtype.INT8 else model


def marker(share: WorkerSettings, command: Command) -> Path:
    """Return the file that is there when this share was compiled from these very sources."""
    colocated = share.colocated and share.colocated.dtype
    identity = {
        "machine": {**machine(), "memory_gib": None},
        "isa": os.environ.get(ISA),
        "sources": sources(),
        "command": command,
        "share": (share.role, share.device, share.model.dtype, colocated),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return _compiled() / f"{digest[:16]}.complete"


def _compiled() -> Path:
    """Return the folder of compiled code, of all states of the sources."""
    given = os.environ.get(COMPILED)
    return Path(given) if given else user_cache() / "compiled"


async def _count(progress: StageReporter) -> None:
    """Show how much has been compiled since now, for as long as it goes on; how much there is to
    compile is known where nothing ever was."""
    began, total = time.time(), 0 if any(_compiled().glob("*.complete")) else SIGNATURES
    while True:
        done = sum(file.stat().st_mtime >= began for file in _compiled().glob("**/*.nbc"))
        progress.stage(NAME, STAGE, min(done, SIGNATURES - 1), total)
        await asyncio.sleep(COUNTED_SECONDS)


async def _compile(share: WorkerSettings, done: Path, command: Command, folder: RunFolder) -> None:
    await ask_worker("compile", f"{NAME}-{done.stem}", share, command, folder)
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()
