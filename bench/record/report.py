"""Shared parts of the benchmarks: median and range of repetitions, and the prompts.

Leaves measuring to each benchmark; imports no torch, so that a benchmark can set threads first.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.load.prompts import BundledPrompt as Prompt
from outrider.cli.load.prompts import bundled as prompts
from outrider.cli.machine_info import machine, write_report

__all__ = [
    "RESULTS",
    "Prompt",
    "Spread",
    "headless_pyplot",
    "machine",
    "median_and_range",
    "prompts",
    "say",
    "write_report",
    "write_run",
]
RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one thing."""

    median: float
    low: float
    high: float
    n: int

    def above(self, other: "Spread") -> bool:
        """True if this is larger by more than chance: the ranges do not overlap."""
        return self.low > other.high


def median_and_range(values: Sequence[float]) -> Spread:
    """Median, least and largest; raises `StatisticsError` where there is no value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def write_run(
    out: Path, module: str, results: Any, ratios: Mapping[str, float], load: Sequence[float]
) -> None:
    """Write the report of this process's run of a module of `bench`, with its options."""
    command = f"python -m bench.{module} {' '.join(sys.argv[1:])}"
    write_report(out, command=command, results=results, ratios=ratios, load_average=load)


def headless_pyplot() -> Any:
    """Return matplotlib's `pyplot`, which draws into files alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def say(words: str) -> None:
    """Tell who waits what is being done."""
    print(words, file=sys.stderr, flush=True)
