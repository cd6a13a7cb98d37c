"""Measured facts that outlive a process: small JSON files, each named by what it depends on.

That is the processor's model and flags, the instruction set in use, the packages that make machine
code, the source of the kernels, and the shape of the model.

Leaves measuring, and doubting what is remembered, to the callers. A file that cannot be read only
costs measuring again.
"""

import functools
import hashlib
import json
import logging
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from outrider import kernels
from outrider.contract.version import version
from outrider.contract.whole_file import write_whole
from outrider.kernels.jit import isa
from outrider.worker.model.config import ModelConfig

logger = logging.getLogger(__name__)

PACKAGES = ("numba", "llvmlite", "numpy")


def facts_file(folder: Path, name: str, config: ModelConfig, *further: object) -> Path:
    """Return the file for facts about this machine, the packages, a model shape and `further`."""
    versions = [version(), *map(metadata.version, PACKAGES)]
    shape = json.dumps(asdict(config), default=str, sort_keys=True)
    identity = repr((_processor(), isa.current(), versions, _kernels(), shape, further))
    return folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def remembered(file: Path) -> dict[str, Any] | None:
    """Return the facts of a file; None if there is none, or none that can be read."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def remember(file: Path, facts: dict[str, Any]) -> None:
    """Write facts whole.

    Where that cannot be done they are measured again, by the next process that wants them.
    """
    try:
        write_whole(file, json.dumps(facts, indent=2))
    except OSError as error:
        logger.info("%s is not remembered: %s", file.name, error)


def kernel_sources() -> list[Path]:
    """Return every source file of `outrider.kernels`, those for GPUs too."""
    return sorted(Path(kernels.__path__[0]).rglob("*.py"))


@functools.cache
def _kernels() -> str:
    """Return SHA-256 of the kernels' source: any line may change results and times."""
    digest = hashlib.sha256()
    for file in kernel_sources():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _processor() -> str:
    """Return model and flags of the processor, as Linux gives them; elsewhere its name."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(wanted))
