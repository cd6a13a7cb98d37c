"""Many cases measured on a CUDA device one after the other, until time is up, and resumed later.

The report is written after every case, so a run that is cut off loses one. Leaves what a case is
to each benchmark, and the order of benchmarks to `device`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import triton

from bench.gpu.cases.graph_timing import copy_bandwidth
from bench.record.report import write_report
from bench.roofline.work import PARTS

Entry = dict[str, Any]
"""Figures of one case, as JSON has them; `failed` says why there are none."""


def missing() -> str:
    """Return what this machine lacks; empty if nothing."""
    if not torch.cuda.is_available():
        return "there is no CUDA device here"
    return "TRITON_INTERPRET is set" if triton.knobs.runtime.interpret else ""


def says_missing(command: str) -> bool:
    """True if something is missing, which is then said."""
    lacking = missing()
    if lacking:
        print(f"{lacking}: nothing was measured. Where there is one: {command}", file=sys.stderr)
    return bool(lacking)


def device() -> dict[str, Any]:
    """Return facts of the device; bandwidth is the data sheet's, or else that of a copy."""
    name = torch.cuda.get_device_name()
    copied = copy_bandwidth()
    sheet = next((part.bandwidth for part in PARTS if part.name in name), None)
    return named() | {
        "capability": list(torch.cuda.get_device_capability()),
        "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size,
        "bandwidth": sheet or copied,
        "bandwidth_from": "data sheet" if sheet else "copy",
        "copy_bandwidth": copied,
    }


def named() -> dict[str, Any]:
    """Return the device's name and versions, by which `earlier` tells its reports."""
    return {
        "name": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def can_plot() -> bool:
    """True if there is matplotlib; says so if not."""
    if find_spec("matplotlib") is None:
        print("matplotlib is not installed: no plot")
        return False
    return True


def parser(about: str | None, command: str, report: Path) -> argparse.ArgumentParser:
    """With what all benchmarks of a device can be told."""
    made = argparse.ArgumentParser(
        prog=command, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--report", type=Path, default=report, help="default: %(default)s")
    made.add_argument("--seconds", type=float, help="start no further case after so many")
    made.add_argument(
        "--resume", action="store_true", help="keep what the report has of this device"
    )
    return made


def saver(
    options: argparse.Namespace,
    command: str,
    facts: Mapping[str, Any],
    key: str,
    beside: Mapping[str, Any] | None = None,
    ratios: Callable[[Sequence[Entry]], Mapping[str, float]] = lambda entries: {},
) -> Callable[[Sequence[Entry]], None]:
    """Return a function that writes the report of so many entries, as `results[key]`."""
    load = os.getloadavg()

    def save(entries: Sequence[Entry]) -> None:
        results = {"device": facts, **(beside or {}), key: entries}
        write_report(options.report, command, results, ratios(entries), load)

    return save


def earlier(path: Path, facts: Mapping[str, Any], key: str) -> dict[str, Entry]:
    """Return entries of `results[key]` by case, if the same device and versions measured them."""
    if not path.exists():
        return {}
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    same = all(results["device"][of] == facts[of] for of in ("name", "torch", "triton"))
    return {one["case"]: one for one in results[key]} if same else {}


@dataclass(frozen=True, slots=True)
class Task:
    """One case."""

    name: str
    measure: Callable[[], Entry]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run."""

    entries: Sequence[Entry]
    left: Sequence[str]
    """Cases that there was no time for."""

    @property
    def measured(self) -> list[Entry]:
        """Entries with figures."""
        return [one for one in self.entries if "failed" not in one]

    @property
    def status(self) -> int:
        """Of the process: 0 where every case has figures."""
        return int(bool(self.left) or len(self.measured) < len(self.entries))

    def said(self) -> str:
        """One line for people."""
        failed = [one["case"] for one in self.entries if "failed" in one]
        parts = [f"{len(self.measured)} cases measured"]
        if failed:
            parts.append(f"{len(failed)} failed: {', '.join(failed)}")
        if self.left:
            parts.append(f"{len(self.left)} left for --resume: {self.left[0]} and what follows")
        return "; ".join(parts)


def sweep(
    tasks: Iterable[Task],
    kept: Mapping[str, Entry],
    seconds: float | None,
    save: Callable[[Sequence[Entry]], None],
    show: Callable[[Entry], str],
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure what `kept` lacks, then again what had failed; a case that fails stops no other."""
    wanted = {task.name: task for task in tasks}
    entries = {name: one for name, one in kept.items() if name in wanted}
    again = [name for name, one in entries.items() if "failed" in one]
    left = []
    begin = clock()
    for name in [*(name for name in wanted if name not in entries), *again]:
        if seconds is not None and clock() - begin > seconds:
            left.append(name)
            continue
        entries[name] = {"case": name} | attempted(wanted[name])
        print(failure(entries[name]) or show(entries[name]), flush=True)
        save(list(entries.values()))
    return Outcome(list(entries.values()), left)


def attempted(task: Task) -> Entry:
    """Return what the task gives, or why it does not."""
    try:
        return task.measure()
    except Exception as error:  # a compiler, a driver or a foreign package may raise anything
        return {"failed": reason(error)}


def reason(error: Exception) -> str:
    """Type and first line of what was raised."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"


def failure(entry: Entry) -> str:
    """That a case failed, for people; empty if it did not."""
    return f"{entry['case']} failed: {entry['failed']}" if "failed" in entry else ""
