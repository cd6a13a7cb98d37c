"""Shared parts of the benchmarks: medians and ranges, prompts, and the JSON of results.

Leaves measuring to each benchmark; imports no torch, so that a benchmark can set threads first.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.cli.load.prompts import BundledPrompt, bundled
from outrider.cli.machine.info import heading
from outrider.cli.machine.info import machine as machine

Prompt, prompts = BundledPrompt, bundled
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


def write_report(
    path: Path, command: str, results: Any, ratios: Mapping[str, float], load: Sequence[float]
) -> None:
    """Write the JSON that README and docs quote.

    `results` are the figures (dataclasses are spelt out); `ratios` a flat map of what is claimed;
    `command` and `load` are those of `heading`.
    """
    report = {
        **heading(command, load),
        "results": results,
        "ratios": {name: round(value, 4) for name, value in ratios.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2, default=asdict, allow_nan=False) + "\n")


def write_run(
    out: Path, module: str, results: Any, ratios: Mapping[str, float], load: Sequence[float]
) -> None:
    """Write the report of this process's run of a module of `bench`, with its options."""
    command = f"python -m bench.{module} {' '.join(sys.argv[1:])}"
    write_report(out, command, results, ratios, load)


def headless_pyplot() -> Any:
    """Return matplotlib's `pyplot`, which draws into files alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def say(words: str) -> None:
    """Tell who waits what is being done."""
    print(words, file=sys.stderr, flush=True)
