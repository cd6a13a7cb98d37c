"""Host cost of one step at 64 nodes, of a target and of a draft: `python -m bench.host_tree`.

`--gpu`: with the GPU runners, over a device whose launches cost nothing; of plain decoding, of a
linked pair and of a `Colocated` one.

Times what an engine does between two passes: it takes messages in, `next`, samples or scores what a
pass put out, `settle`. Schedulers and runners are the real ones; models only take time, and put out
what `models` says. *Work* is processor time of the loop's own thread; *stalls* are what
the wall clock shows beyond it: another thread held the interpreter lock, or the processor. Of some
further steps it counts the calls of Outrider's own functions, and the files that these lie in.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.host_tree.loops import (
    STAGES,
    ColocatedLoop,
    DraftLoop,
    StepTimings,
    TargetLoop,
    TimedLoop,
    draft_passes,
    target_passes,
)
from bench.host_tree.models import PassClock, computing
from bench.host_tree.peer import DRAFT_SECONDS, TARGET_SECONDS
from bench.record.report import RESULTS, write_run

TARGET_LIMIT, DRAFT_LIMIT, GPU_LIMIT = 100.0, 50.0, 200.0
"""Microseconds of work that a step may take."""
WARM_STEPS = 200
FOLLOWED_STEPS = 50
"""Steps whose calls are counted."""
SAMPLE = STAGES.index("sample")
SHOWN = (*STAGES, "total but sample", "total")


@dataclass(frozen=True, slots=True)
class Case:
    """One role, and number of messages of growth a step."""

    name: str
    limit_us: float
    loop: Callable[[], TimedLoop]


def _targets(messages: int) -> TimedLoop:
    return TargetLoop(messages, target_passes(computing(TARGET_SECONDS)))


CASES = (
    Case("target, 1 message", TARGET_LIMIT, lambda: _targets(1)),
    Case("target, 2 messages", TARGET_LIMIT, lambda: _targets(2)),
    Case("draft", DRAFT_LIMIT, lambda: DraftLoop(draft_passes(computing(DRAFT_SECONDS)))),
)


def gpu_cases() -> tuple[Case, ...]:
    """Return the cases of the GPU runners, with chains where the product has them."""
    from bench.host_tree import device  # loads torch and triton
    from outrider.worker.gpu.chained_passes import CHAINED

    long, short = computing(TARGET_SECONDS), computing(DRAFT_SECONDS)

    def target(messages: int) -> TimedLoop:
        return TargetLoop(messages, device.target_passes(long, PassClock()))

    def colocated() -> TimedLoop:
        clock = PassClock()
        return ColocatedLoop(
            device.target_passes(long, clock), device.draft_passes(short, clock, 1)
        )

    return (
        Case("plain decoding", GPU_LIMIT, lambda: target(0)),
        Case("target, linked", GPU_LIMIT, lambda: target(1)),
        Case(
            "draft, linked",
            GPU_LIMIT,
            lambda: DraftLoop(device.draft_passes(short, PassClock(), CHAINED)),
        ),
        Case("pair, colocated", GPU_LIMIT, colocated),
    )


def measure(case: Case, steps: int) -> StepTimings:
    """Return so many steps that count, after some that warm up."""
    loop, turns = case.loop(), 0
    while len(loop.laps.stages) < WARM_STEPS + steps:
        loop.step()
        turns += 1
        if turns > 50 * (WARM_STEPS + steps):
            raise RuntimeError(f"{case.name}: trees are hardly ever full")
    laps = loop.laps
    return StepTimings(
        laps.stages[WARM_STEPS:], laps.nodes[WARM_STEPS:], laps.messages[WARM_STEPS:]
    )


def entered(case: Case) -> dict[str, float]:
    """Return how many functions of Outrider a step calls, and of how many files: medians."""
    loop, steps = case.loop(), list[list[str]]()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).startswith("outrider."):
            steps[-1].append(frame.f_code.co_filename)

    while len(loop.laps.nodes) < FOLLOWED_STEPS:
        counted, arrived = len(loop.laps.nodes), loop.arrived()
        steps.append([])
        sys.setprofile(note)
        loop.run(arrived)
        sys.setprofile(None)
        if len(loop.laps.nodes) == counted:
            steps.pop()
    return {
        "calls": statistics.median(map(len, steps)),
        "files": statistics.median(len({*files}) for files in steps),
    }


def figures(stages: NDArray[np.int64]) -> dict[str, dict[str, float]]:
    """Return each stage's and all stages' work and stalls, in microseconds.

    `stages` int64[steps, stages, 2] nanoseconds of the wall clock and of the thread's own time.
    """
    total = stages.sum(axis=1, keepdims=True)
    beside = total - stages[:, SAMPLE : SAMPLE + 1]
    whole = np.concatenate([stages, beside, total], axis=1) / 1e3
    work = whole[:, :, 1]
    stalls = np.maximum(whole[:, :, 0] - work, 0.0)
    return {
        stage: {
            "work_us": round(float(np.median(work[:, at])), 2),
            "work_p10_us": round(float(np.percentile(work[:, at], 10)), 2),
            "work_p99_us": round(float(np.percentile(work[:, at], 99)), 2),
            "stall_us": round(float(np.mean(stalls[:, at])), 2),
            "stall_p99_us": round(float(np.percentile(stalls[:, at], 99)), 2),
        }
        for at, stage in enumerate(SHOWN)
    }


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(prog="python -m bench.host_tree", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps of each repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--gpu", action="store_true", help="the GPU runners")
    parser.add_argument("--out", type=Path, help="default: host_tree.json, host_gpu.json")
    return parser.parse_args()


def main() -> None:
    """Measure all cases in turn, print a table, write the JSON."""
    options = parse()
    load = os.getloadavg()
    cases = gpu_cases() if options.gpu else CASES
    runs: dict[str, list[StepTimings]] = {case.name: [] for case in cases}
    for _ in range(options.repetitions):
        for case in cases:
            runs[case.name].append(measure(case, options.steps))
    results = {case.name: summary(runs[case.name]) | entered(case) for case in cases}
    Console().print(table(results))
    unit = (
        "microseconds of a step beside its pass: median, p10 and p99 of work (p10 is least "
        "disturbed by other work on the machine), mean and p99 of stalls"
    )
    ratios = {
        f"{case.name.replace(', ', '_').replace(' ', '_')}_work_vs_limit": (
            results[case.name]["stages"]["total"]["work_us"] / case.limit_us
        )
        for case in cases
    }
    out = options.out or RESULTS / ("host_gpu.json" if options.gpu else "host_tree.json")
    write_run(out, "host_tree", {"unit": unit, "cases": results}, ratios, load)


def summary(runs: list[StepTimings]) -> dict[str, Any]:
    """Return the figures of one case over its repetitions."""
    stages = [np.array(laps.stages, np.int64) for laps in runs]
    return {
        "steps": sum(len(laps.nodes) for laps in runs),
        "median_nodes": statistics.median(n for laps in runs for n in laps.nodes),
        "messages_a_step": round(statistics.mean(m for laps in runs for m in laps.messages), 2),
        "stages": figures(np.concatenate(stages)),
    }


def table(results: dict[str, Any]) -> Table:
    """Return work (median) and stalls (mean) by stage and case."""
    made = Table("work + stalls, µs", *(name.replace(", ", "\n") for name in results))
    for stage in SHOWN:
        cells = [one["stages"][stage] for one in results.values()]
        made.add_row(stage, *(f"{c['work_us']:.0f} + {c['stall_us']:.0f}" for c in cells))
    for count in ("calls", "files"):
        made.add_row(count, *(f"{one[count]:.0f}" for one in results.values()))
    return made


if __name__ == "__main__":
    main()
