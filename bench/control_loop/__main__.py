"""The control loop over a simulated day of traffic: `python -m bench.control_loop`.

The same requests are served with drafting always on, always off, and as the operator's policy
decides; then, on a machine where drafting pays at any load, more requests than plain decoding can
answer, with drafting decided by the policy and always off; then the plants of `plants`, a day
each. Simulated time and a fixed seed: the figures say how the policy behaves, not how fast anything
is.
"""

import argparse
import itertools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.control_loop.plants import PLANTS, Plant
from bench.control_loop.plants import live as plants_live
from bench.control_loop.service import Request, SimulatedService
from bench.record.pictures import put_title
from bench.record.report import RESULTS, headless_pyplot, write_run
from outrider.operator.control.break_even import break_even
from outrider.operator.control.inputs import Decision
from outrider.operator.control.memory import LoopMemory, PolicyInForce, new_memory
from outrider.operator.control.policy import decide
from outrider.operator.control.scrapes import Scrapes
from outrider.operator.control.settings import ControlSettings, ScalingRule, SpeculationMode

DAY = 86_400
TOKENS = 200
"""Mean length of an answer; a gamma distribution of shape 2."""
EVERY = 900
"""Seconds between two points of a series."""
MEMORY_BOUND = {"peak": 7.5, "hit_rate": 0.8, "knee_rows": 96}
"""The second day: plain decoding answers 5 requests a second there."""
SIDES = {
    "always_off": ControlSettings(mode=SpeculationMode.DISABLED, draft=ScalingRule(min_replicas=0)),
    "always_on": ControlSettings(mode=SpeculationMode.STATIC, draft=ScalingRule(min_replicas=2)),
    "controlled": ControlSettings(),
}


OVERLOADED = ("controlled", "always_off")
"""Sides of the second day."""


@dataclass(frozen=True, slots=True)
class Point:
    """One pass of the loop."""

    second: int
    running: int
    waiting: int
    gain_percent: float | None
    decision: Decision
    drafts: int


@dataclass(frozen=True, slots=True)
class Day:
    """One day with one side."""

    points: tuple[Point, ...]
    requests: tuple[Request, ...]
    draft_seconds: int

    @property
    def switches(self) -> int:
        """Changes between on and off."""
        on = [point.decision.speculate for point in self.points]
        return sum(a != b for a, b in itertools.pairwise(on))

    def latencies(self) -> list[float]:
        """Return seconds from arrival to the end of each answer that ended."""
        return sorted(r.ended - r.arrived for r in self.requests if r.ended is not None)


def main() -> int:
    """Simulates, writes JSON and a plot, prints the ratios."""
    options = parse()
    load = os.getloadavg()
    days = {side: live(control, options) for side, control in SIDES.items()}
    measured = {side: figures(day) for side, day in days.items()}
    overload = argparse.Namespace(**vars(options) | MEMORY_BOUND)
    pressed = {side: figures(live(SIDES[side], overload)) for side in OVERLOADED}
    ratios = compared(measured) | under_overload(pressed)
    plants = {name: plant_figures(plant) for name, plant in PLANTS.items()}
    write_run(
        options.out,
        "control_loop",
        {
            **measured,
            "overload": pressed,
            "plants": plants,
            "events": events(days["controlled"]),
            "series": series(days),
        },
        ratios,
        load,
    )
    plot(days, options.out.with_suffix(".png"), options)
    put_title(options.out)
    for name, value in ratios.items():
        print(f"{name:46} {value:.3f}")
    for name, found in plants.items():
        print(f"{name:24}", ", ".join(f"{value:.4g} {key}" for key, value in found.items()))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(prog="python -m bench.control_loop", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=DAY)
    parser.add_argument("--peak", type=float, default=2.9, help="requests per second at noon")
    parser.add_argument("--night", type=float, default=0.15, help="requests per second at night")
    parser.add_argument("--hit-rate", type=float, default=0.7)
    parser.add_argument("--knee-rows", type=int, default=24)
    parser.add_argument("--out", type=Path, default=RESULTS / "control_loop.json")
    return parser.parse_args()


def rate(options: argparse.Namespace) -> Callable[[float], float]:
    """Return requests per second by the second of the day: a wave that is highest in the middle."""

    def at(second: float) -> float:
        wave = (1 - math.cos(2 * math.pi * second / options.seconds)) / 2
        return float(options.night + (options.peak - options.night) * wave**2)

    return at


def traffic(options: argparse.Namespace) -> list[Request]:
    """A Poisson process of the day's rate, by thinning."""
    random_numbers, at, when = np.random.default_rng(options.seed), rate(options), 0.0
    requests = []
    while (when := when + float(random_numbers.exponential(1 / options.peak))) < options.seconds:
        if random_numbers.random() < at(when) / options.peak:
            requests.append(Request(when, float(random_numbers.gamma(2, TOKENS / 2))))
    return requests


def live(control: ControlSettings, options: argparse.Namespace) -> Day:
    """One day; the first pass finds two drafts linked and drafting on."""
    requests = traffic(options)
    noise = np.random.default_rng(options.seed + 1)
    service = SimulatedService(
        requests, options.hit_rate, options.knee_rows, noise, speculate=True, desired=2
    )
    service.starts = [-3600, -3600]
    memory = new_memory(
        control, 0.0, PolicyInForce(version=0, speculate=True, max_rows=control.max_rows)
    )
    scrapes, points = Scrapes(), []
    while service.now < options.seconds:
        service.second()
        if service.now % control.interval_seconds == 0:
            scrapes, point = one_pass(control, memory, scrapes, service)
            memory = point.decision.memory
            points.append(point)
    return Day(tuple(points), tuple(requests), service.draft_seconds)


def one_pass(
    control: ControlSettings, memory: LoopMemory, scrapes: Scrapes, service: SimulatedService
) -> tuple[Scrapes, Point]:
    """One pass of the loop over the service, which obeys."""
    samples, now, stale = service.samples(), float(service.now), control.stale_after_seconds
    scrapes = scrapes.add(samples, {sample.uid for sample in samples}, now)
    window = scrapes.window(["target"], now, stale)
    seen = replace(service.seen(), window=window, starting=scrapes.starting)
    decision = decide(control, memory, seen, now)
    drafts = len(service.starts) + len(service.stops)
    gain = window.gain_percent if window and memory.speculate else None
    point = Point(service.now, len(service.running), len(service.queue), gain, decision, drafts)
    service.obey(decision)
    return scrapes, point


def figures(day: Day) -> dict[str, Any]:
    """Return what a day came to."""
    latencies = day.latencies()
    return {
        "requests": len(day.requests),
        "answered": len(latencies),
        "mean_latency_seconds": sum(latencies) / len(latencies),
        "p95_latency_seconds": latencies[int(0.95 * len(latencies))],
        "draft_hours": day.draft_seconds / 3600,
        "switches": day.switches,
        "passes_off": sum(not point.decision.speculate for point in day.points) / len(day.points),
    }


def compared(measured: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The controlled day against the others."""
    own = measured["controlled"]
    names = ("mean_latency_seconds", "p95_latency_seconds", "draft_hours")
    return {
        f"controlled_vs_{side}_{name}": own[name] / measured[side][name]
        for side in ("always_on", "always_off")
        for name in names
        if side == "always_on" or name != "draft_hours"
    }


def under_overload(pressed: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Under overload: plain decoding against the policy."""
    own, off = (pressed[side]["mean_latency_seconds"] for side in OVERLOADED)
    return {"overload_always_off_vs_controlled_mean_latency_seconds": off / own}


def plant_figures(plant: Plant) -> dict[str, float]:
    """Return what a day of a plant came to."""
    outcome = plants_live(plant, DAY)
    return {
        "draft_hours": outcome.draft_seconds / 3600,
        "drafts_at_the_end": outcome.drafts,
        "policies": len(outcome.policies),
        "policies_an_hour": outcome.policies_an_hour,
        "probes": len(outcome.probes),
        "percent_on": 100 * outcome.on_seconds / outcome.seconds,
        "percent_lost": 100 * outcome.loss(plant.share),
    }


def events(day: Day) -> list[str]:
    """Return what happened, as the log would have it."""
    return [
        f"{point.second // 3600:02}:{point.second // 60 % 60:02} {transition.sentence}"
        for point in day.points
        for transition in point.decision.transitions
    ]


def series(days: dict[str, Day]) -> dict[str, dict[str, list[Any]]]:
    """Return points by the side, thinned out."""
    thin = {side: [p for p in day.points if p.second % EVERY == 0] for side, day in days.items()}
    return {
        side: {
            "waiting": [p.waiting for p in points],
            "running": [p.running for p in points],
            "rows": [p.decision.max_rows * p.decision.speculate for p in points],
            "drafts": [p.drafts for p in points],
        }
        for side, points in thin.items()
    }


def plot(days: dict[str, Day], path: Path, options: argparse.Namespace) -> None:
    """Load, gain, what was decided, and how long requests took."""
    pyplot = headless_pyplot()

    figure, axes = pyplot.subplots(4, 1, figsize=(10, 9), sharex=True)
    day = days["controlled"]
    hours = [p.second / 3600 for p in day.points]
    axes[0].plot(hours, [rate(options)(p.second) for p in day.points], label="requests a second")
    axes[0].legend(loc="upper left")
    waiting = axes[0].twinx()
    waiting.plot(hours, [p.waiting for p in day.points], color="tab:red", lw=0.7)
    waiting.set_ylabel("waiting", color="tab:red")
    judged = [(h, p.gain_percent) for h, p in zip(hours, day.points, strict=True) if p.gain_percent]
    axes[1].plot(*zip(*judged, strict=True), ".", ms=2, label="gain while drafting, %")
    pays = break_even(SIDES["controlled"], drafts=2, targets=1)
    for percent in (pays.off_below, pays.on_above):
        axes[1].axhline(percent, color="grey", lw=0.7)
    axes[1].legend(loc="upper left")
    rows = [p.decision.max_rows * p.decision.speculate for p in day.points]
    axes[2].step(hours, rows, where="post", label="ceiling of node rows; 0: drafting off")
    axes[2].step(hours, [p.drafts for p in day.points], where="post", label="draft pods")
    axes[2].legend(loc="upper left")
    for side, other in days.items():
        axes[3].plot(*by_hour(other), label=side.replace("_", " "))
    axes[3].set(xlabel="hour", ylabel="mean seconds of a request", yscale="log")
    axes[3].legend(loc="upper left")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def by_hour(day: Day) -> tuple[list[float], list[float]]:
    """Mean latency by when requests came, in quarters of an hour."""
    quarters: dict[int, list[float]] = {}
    for request in day.requests:
        if request.ended is not None:
            quarters.setdefault(int(request.arrived // 900), []).append(
                request.ended - request.arrived
            )
    known = sorted(quarters)
    means = [sum(quarters[q]) / len(quarters[q]) for q in known]
    return [(q + 0.5) / 4 for q in known], means


if __name__ == "__main__":
    sys.exit(main())
