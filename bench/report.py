"""Shared parts of the benchmarks: median and range of repetitions, and the prompts.

Leaves measuring to each benchmark; imports no torch, so that a benchmark can set threads first.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.load.prompts import BundledPrompt as Prompt
from outrider.cli.load.prompts import bundled as prompts
from outrider.cli.machine.info import machine, write_report

__all__ = [
    "RESULTS",
    "Prompt",
    "Spread",
    "machine",
    "median_and_range",
    "prompts",
    "say",
    "write_report",
]
RESULTS = Path(__file__).parent / "results"


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


def say(words: str) -> None:
    """Tell who waits what is being done."""
    print(words, file=sys.stderr, flush=True)
