"""Makes what is missing, whole or not at all, by one process at a time.

Leaves looking to `finding`, and the work to `wheels` and `go`.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tools.kube_assets import finding, go, installed, wheels
from tools.kube_assets.pins import (
    CLIENTS,
    CONTROLLERS,
    PROMETHEUS,
    PROMTOOL,
    SERVERS,
    SETS,
    STAGES,
    AssetsError,
    Controller,
    this_platform,
)
from tools.kube_assets.progress import Progress

WAIT_SECONDS = 0.5
SCRATCH = ".making-"


def found(*sets: str) -> Path | None:
    """Where every file of the sets, or all that has to be made, lies already; None: nowhere."""
    wanted = finding.names(sets)
    given, _ = finding.given(wanted, os.environ)
    core, _ = installed.usable(wanted, os.environ)
    cached = finding.cache(os.environ, Path.home())
    return given or (None if finding.missing(cached, _made(wanted, core)) else cached)


def folder(*sets: str, out: Path | None = None, progress: Progress | None = None) -> Path:
    """A folder that holds every file of the sets; makes in `out`, else the cache, what is missing.

    Raises `AssetsError`, which says what is missing and why it cannot be had.
    """
    wanted = finding.names(sets)
    shown = progress or Progress()
    if out is not None:
        return filled(out, wanted, shown)
    given, reason = finding.given(wanted, os.environ)
    if given:
        return given
    cache = finding.cache(os.environ, Path.home())
    core, why_not = installed.usable(wanted, os.environ)
    if reason and not core:
        shown.say(why_not or reason)
    filled(cache, _made(wanted, core), shown)
    return installed.beside(core, cache, wanted) if core else cache


def _made(wanted: Sequence[str], core: Path | None) -> tuple[str, ...]:
    """What is to be made, where the set `core` may be installed already."""
    return tuple(name for name in wanted if not (core and name in SETS["core"]))


def filled(out: Path, wanted: Sequence[str], progress: Progress, sources: Path = SERVERS) -> Path:
    """A folder in which every wanted file is there; builds by the Go module `sources`."""
    if finding.missing(out, wanted):
        _make(wanted, out, progress, sources)
    return out


def _make(wanted: Sequence[str], out: Path, progress: Progress, sources: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out, progress), _scratch(out) as scratch:
        lacking = finding.missing(out, wanted)  # another process may have made them meanwhile
        if not lacking:
            return
        progress.say(f"{out} lacks {', '.join(lacking)}")
        for batch, make in _plan(lacking, sources):
            make(scratch, progress)
            for name in batch:
                (scratch / name).rename(out / name)
    still = finding.missing(out, wanted)
    if still:
        raise AssetsError(f"{out} still lacks {', '.join(still)} after all was made")
    progress.say(f"ready in {out}")


Make = Callable[[Path, Progress], None]


def _plan(lacking: Sequence[str], sources: Path) -> Iterator[tuple[tuple[str, ...], Make]]:
    """Batches of files and what makes each batch in a scratch folder."""
    rest = list(lacking)
    if wheels.usable_here(CLIENTS):
        fetched = tuple(name for name in ("kubectl", "helm") if name in rest)
        if fetched:
            yield fetched, wheels.clients
        rest = [name for name in rest if name not in fetched]
    elif "helm" in rest:
        yield ("helm",), _helm
        rest.remove("helm")
    if PROMTOOL in rest:
        yield (PROMTOOL,), _promtool
        rest.remove(PROMTOOL)
    for one in CONTROLLERS:
        if some := tuple(name for name in rest if name in one.names):
            yield some, partial(_controller, one)
            rest = [name for name in rest if name not in some]
    if rest:
        yield tuple(rest), _built(rest, sources)


def _built(names: Sequence[str], sources: Path) -> Make:
    programs = [name for name in names if name != STAGES]

    def make(scratch: Path, progress: Progress) -> None:
        toolchain = go.toolchain(scratch, progress, sources)
        if programs:
            go.build(toolchain, programs, scratch, progress, sources)
        if STAGES in names:
            go.stages(toolchain, scratch)

    return make


def _promtool(scratch: Path, progress: Progress) -> None:
    go.promtool(go.toolchain(scratch, progress, PROMETHEUS), scratch, progress)


def _controller(one: Controller, scratch: Path, progress: Progress) -> None:
    go.controller(go.toolchain(scratch, progress, one.sources), one, scratch, progress)


def _helm(scratch: Path, progress: Progress) -> None:
    found = shutil.which("helm")
    if not found:
        raise AssetsError(f"helm is needed on PATH: {CLIENTS.requirement} has none for "
                          f"{this_platform()}")  # fmt: skip
    shutil.copy(found, scratch / "helm")


@contextlib.contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A folder for one making, on the same file system; what a killed one left goes first."""
    for left in out.glob(f"{SCRATCH}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=out, prefix=SCRATCH) as scratch:
        yield Path(scratch)


@contextlib.contextmanager
def _alone(out: Path, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock; print a line while another process has it."""
    with (out / ".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress.tick(f"waiting for another process that fills {out}")
                time.sleep(WAIT_SECONDS)
        yield
