"""Plot of a simulation: load, speed, gain and decisions over virtual time, summed over its cells.

Needs matplotlib, which is not among the command line's own requirements.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.cli.terminal.plotting import picture

Point = Mapping[str, float]


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Write the picture of what the simulator printed."""
    every = [cell["series"] for cell in found["cells"]]
    points = [summed(moment) for moment in zip(*every, strict=False)]
    with picture(path, 5, figsize=(9, 10), sharex=True) as axes:
        _rates(axes[0], points, {"arrived": "requests that come", "answered": "requests that end"})
        _rates(axes[1], points, {"tokens": "tokens"})
        _levels(axes[2], points, {"running": "requests that run", "waiting": "requests that wait"})
        _steps(axes[3], points, {"drafts": "drafts", "speculating": "cells with drafting on"})
        seconds = [later["second"] for later in points[1:]]
        axes[4].step(seconds, [gain(*pair) for pair in itertools.pairwise(points)], where="pre")
        axes[4].set(ylabel="gain, %", xlabel="seconds")


def summed(moment: Sequence[Point]) -> Point:
    """Add up what all cells were at one moment."""
    sums = {name: sum(point[name] for point in moment) for name in moment[0]}
    return sums | {"second": moment[0]["second"]}


def gain(before: Point, after: Point) -> float:
    """Return the gain between two moments, in percent; not a number where nothing was decoded."""
    spent = after["gain_spent"] - before["gain_spent"]
    return 100 * (after["gain_plain"] - before["gain_plain"]) / spent if spent else math.nan


def _rates(axis: Any, points: Sequence[Point], labels: Mapping[str, str]) -> None:
    """Plot how fast counters rise."""
    pairs = list(itertools.pairwise(points))
    for name, label in labels.items():
        rates = [(b[name] - a[name]) / (b["second"] - a["second"]) for a, b in pairs]
        axis.plot([b["second"] for _, b in pairs], rates, label=label)
    axis.set_ylabel("a second")
    axis.legend(loc="upper left", fontsize="small")


def _levels(axis: Any, points: Sequence[Point], labels: Mapping[str, str]) -> None:
    for name, label in labels.items():
        axis.plot([point["second"] for point in points], [p[name] for p in points], label=label)
    axis.legend(loc="upper left", fontsize="small")


def _steps(axis: Any, points: Sequence[Point], labels: Mapping[str, str]) -> None:
    seconds = [point["second"] for point in points]
    for name, label in labels.items():
        axis.step(seconds, [point[name] for point in points], where="post", label=label)
    axis.legend(loc="upper left", fontsize="small")
