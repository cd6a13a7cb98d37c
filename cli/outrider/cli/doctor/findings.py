"""What a machine has of what a service needs: packages, processor, GPUs, disk and ports.

Judges nothing.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from outrider.cli.failures import Failure
from outrider.cli.machine import gpus, ports
from outrider.cli.machine import info as machine_info
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.output import result_of
from outrider.cli.workers.process import WORKER, Command
from outrider.contract import process
from outrider.contract.version import missing_extra, version

WORKERS = "worker"
"""The extra of which a worker is made."""
INSTALL = missing_extra(WORKERS)
DRIVER = Path("/proc/driver/nvidia/gpus")
PORTS = {process.GRPC_PORT: ports.GRPC_OPTION, process.HTTP_PORT: ports.HTTP_OPTION}
"""What `outrider run` and `serve` take, and the options that change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The folder of prepared models."""

    path: str
    free_bytes: int
    used_bytes: int
    """Bytes of all files in the folder."""
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found."""

    version: str
    machine: Mapping[str, Any]
    """As benchmarks record it."""
    missing: tuple[str, ...] = ()
    """Packages of a worker that are not installed."""
    processor: Mapping[str, Any] = field(default_factory=dict)
    """What a worker says of it; empty where none could be asked."""
    problem: str = ""
    """Why none could be asked."""
    gpus: tuple[str, ...] = ()
    """Names of NVIDIA GPUs."""
    torch: str | None = None
    """Its version; None: it is not installed."""
    disk: Disk
    taken: tuple[int, ...] = ()
    """Ports of `PORTS` on which something listens."""


async def look(cache: Path, progress: StageReporter, command: Command = WORKER) -> Findings:
    """Look at this machine; takes seconds, and minutes where kernels are compiled first."""
    missing, problem = missing_packages(WORKERS), ""
    processor: dict[str, Any] = {}
    if not missing:
        try:
            asked = (*command, "doctor")
            processor = await result_of(
                "the check of the processor", asked, INSTALL, progress, "doctor"
            )
        except Failure as error:
            problem = str(error)
    facts = machine_info.machine()
    return Findings(
        version=version(),
        machine=facts,
        missing=missing,
        processor=processor,
        problem=problem,
        gpus=gpu_names(),
        torch=facts["packages"].get("torch"),
        disk=disk_of(cache),
        taken=tuple(port for port in PORTS if ports.is_taken(port)),
    )


def missing_packages(extra: str) -> tuple[str, ...]:
    """Return the packages of one of Outrider's extras that are not installed.

    Those that only some systems need are left out.
    """
    wanted = []
    for line in metadata.requires("outrider") or []:
        name, _, marker = line.partition(";")
        if marker.strip().replace('"', "'") == f"extra == '{extra}'":
            wanted.append(re.split(r"[^A-Za-z0-9._-]", name.strip())[0])
    return tuple(name for name in wanted if not _installed(name))


def gpu_names(driver: Path = DRIVER) -> tuple[str, ...]:
    """Return the names of NVIDIA GPUs, as their driver says them, or just how many there are."""
    files = sorted(driver.glob("*/information"))
    found = (re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE) for file in files)
    names = tuple(match[1] for match in found if match)
    return names or ("NVIDIA GPU",) * gpus.present()


def disk_of(cache: Path) -> Disk:
    """Return the state of a folder, or of the nearest one above it that exists."""
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return Disk(
        path=str(cache),
        free_bytes=shutil.disk_usage(there).free,
        used_bytes=sum(_sizes(cache)),
        writable=os.access(there, os.W_OK | os.X_OK),
    )


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file; those that vanish meanwhile are left out, and so are links."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(os.path.join(place, name))
                if stat.S_ISREG(state.st_mode):
                    yield state.st_size


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
