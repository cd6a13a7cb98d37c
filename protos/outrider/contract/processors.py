"""Processors on which this process computes.

On Linux those of its affinity. A Mac keeps no thread to a processor; where some of its cores are
faster, they alone count, as a pass that has a thread on a slow one waits for it.
"""

import os

from outrider.contract.sysctl import sysctl

PERFORMANCE_CORES = "hw.perflevel0.logicalcpu"
"""Name in macOS's sysctl for the number of the fastest cores, on processors with several kinds."""


def usable() -> tuple[int, ...]:
    """Return those that the calling thread may use, in order; empty where that is not known."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return tuple(sorted(affinity(0))) if affinity else ()


def performance_cores() -> int | None:
    """Return the number of a Mac's fast cores; None where all are alike, and on other systems."""
    found = sysctl(PERFORMANCE_CORES).get(PERFORMANCE_CORES)
    return None if found is None else int(found)


def slow_cores() -> int:
    """Return the number of a Mac's other cores."""
    fast = performance_cores()
    return 0 if fast is None else (os.cpu_count() or fast) - fast


def count() -> int:
    """Return the number of threads that compute at full speed side by side."""
    return len(usable()) or performance_cores() or os.cpu_count() or 1
