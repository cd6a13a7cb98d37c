"""Memory of processes while a load runs, from /proc (Linux).

Starting and stopping these processes is not its business.
"""

import asyncio
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider.cli.failures import BadInput

PERIOD = 1.0
"""Seconds between samples."""
FIFTH = 5


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Change of one process's memory."""

    pid: int
    first_mib: float
    """Mean over the first fifth of the run."""
    last_mib: float
    """Mean over the last fifth."""
    percent: float
    ended: bool
    """The process ended during the run."""


@dataclass(slots=True)
class MemoryWatch:
    """Samples of the resident set of each process, in bytes."""

    pids: Sequence[int]
    samples: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def sample(self) -> None:
        """Take one sample of each process that is alive."""
        for pid in self.pids:
            size = None if pid in self.ended else resident(pid)
            if size is None:
                self.ended.add(pid)
            else:
                self.samples.setdefault(pid, []).append(size)

    async def run(self) -> None:
        """Sample until it is cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(PERIOD)

    def growth(self) -> list[MemoryGrowth]:
        """One for each process that was seen."""
        return [
            growth(pid, self.samples[pid], pid in self.ended)
            for pid in self.pids
            if pid in self.samples
        ]


def growth(pid: int, samples: Sequence[int], ended: bool) -> MemoryGrowth:
    """From at least one sample."""
    count = max(1, len(samples) // FIFTH)
    first, last = statistics.fmean(samples[:count]), statistics.fmean(samples[-count:])
    return MemoryGrowth(pid, first / 2**20, last / 2**20, (last / first - 1) * 100, ended)


def resident(pid: int) -> int | None:
    """Return the bytes of memory of a process; None if there is none, or it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    kib = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return next((int(value) * 1024 for value in kib), None)


def watch(pids: Sequence[int]) -> MemoryWatch:
    """Of processes that exist; raises `BadInput`."""
    if pids and sys.platform != "linux":
        raise BadInput(f"--watch-rss {pids[0]}: needs /proc, which only Linux has")
    for pid in pids:
        if resident(pid) is None:
            raise BadInput(f"--watch-rss {pid}: no such process; allowed: ids of running ones")
    return MemoryWatch(pids)
