"""Facts of the machine that decide how fast something runs, and how measurements name them."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from outrider.contract import processors
from outrider.contract.sysctl import sysctl

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
         "asimd", "asimddp", "bf16", "i8mm", "sve")  # fmt: skip
"""CPU features that change which numeric path is fast."""
MAC_BRAND = "machdep.cpu.brand_string"
PACKAGES = ("torch", "numba", "numpy", "grpcio")


def machine() -> dict[str, Any]:
    """Return the facts of this machine that decide how fast a benchmark runs."""
    model, flags = cpu()
    return {
        "cpu": model,
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": processors.count(),
        "slow_cores": processors.slow_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def heading(command: str, load_average: Sequence[float]) -> dict[str, Any]:
    """Return what a measurement is known by; `command` repeats it, and `load_average` is
    `os.getloadavg()` from before it began, so that other work on the machine shows."""
    return {
        "command": command,
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": [round(load, 2) for load in load_average],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu() -> tuple[str, frozenset[str]]:
    """Model name and feature flags, from the system's own tables."""
    if brand := sysctl(MAC_BRAND).get(MAC_BRAND):
        return brand, frozenset()
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())
    model = facts.get("model name") or platform.processor() or platform.machine()
    return model, frozenset((facts.get("flags") or facts.get("features") or "").split())
