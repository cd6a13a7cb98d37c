"""Files of measured facts, each named by what they depend on.

That is the processor's model and flags, the instruction set in use, the packages that make machine
code, the source of the kernels, and the shape of the model. Leaves measuring, and doubting what is
remembered, to the callers.
"""

import hashlib
import json
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from outrider import kernels
from outrider.contract.version import version
from outrider.kernels.jit import isa
from outrider.worker.host.disk_cache import sources_sha256
from outrider.worker.model.config import ModelConfig

PACKAGES = ("numba", "llvmlite", "numpy")
KERNELS = Path(kernels.__path__[0])
"""Folder of sources, those for GPUs too: any line may change results and times."""


def facts_file(folder: Path, name: str, config: ModelConfig, *further: object) -> Path:
    """Return the file for facts about this machine, the packages, a model shape and `further`."""
    versions = [version(), *map(metadata.version, PACKAGES)]
    shape = json.dumps(asdict(config), default=str, sort_keys=True)
    identity = repr(
        (_processor(), isa.current(), versions, sources_sha256(KERNELS), shape, further)
    )
    return folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    """Return model and flags of the processor, as Linux gives them; elsewhere its name."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(wanted))
