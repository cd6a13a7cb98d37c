"""The simulator beside the service that it simulates: `python -m bench.simulate`.

Measures the pair's step costs, then keeps 1, 4 and 16 requests running on the real service, one
process with two threads. The simulator gets the step costs, host time as the service counts it,
and the pair's acceptance at one request at a time; it has to foretell tokens per second and the
99th percentile of latency at all three. About four minutes.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import RESULTS, prompts, write_report
from bench.sides import MODES, SERVICE, Service, started, with_engine
from bench.simulate_model import Observed, RowTimes, described, fitted, row_times
from outrider.cli import profile as profiling
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.service_file import read_service
from outrider.cli.top.figures import difference
from outrider.client import Message
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement
from outrider.simulator.figures import cell_figures, summary
from outrider.simulator.run import run_cell

AT_ONCE = (1, 4, 16)
ARRANGEMENT = Arrangement(Placement.COLOCATED, 2)
VOCABULARY = 49_152
"""Of SmolLM2."""
BOUND = 0.1
"""Share by which a figure may miss the measured one."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared."""

    tokens_per_second: float
    p99_seconds: float
    mean_seconds: float
    tokens_per_pass: float


def main() -> int:
    """Measure, simulate, write JSON and print a table."""
    options = parse()
    load = os.getloadavg()
    began = time.monotonic()
    costs = asyncio.run(profiling.profile(options.file, PlanOptions(), quick=True))
    observed = asyncio.run(observe(options))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "costs.json").write_text(json.dumps(costs))
        rows = row_times(VOCABULARY)
        pair = fitted(observed, rows, folder)
        simulated = {n: simulate(n, pair, observed, rows, folder) for n in AT_ONCE}
    measured = {n: figures_of(observed[n]) for n in AT_ONCE}
    ratios = compared(measured, simulated)
    write_report(
        options.out,
        command="python -m bench.simulate " + " ".join(sys.argv[1:]),
        results={
            "measured": {n: asdict(one) for n, one in measured.items()},
            "simulated": {n: asdict(one) for n, one in simulated.items()},
            "host_seconds_per_step": {n: observed[n].host_seconds for n in AT_ONCE},
            "pair": pair,
            "row_seconds": asdict(rows),
            "seconds": time.monotonic() - began,
        },
        ratios=ratios,
        load_average=load,
    )
    for name, value in ratios.items():
        mark = "" if abs(value - 1) <= BOUND or "pass" in name else "   misses"
        print(f"{name:40} {value:.3f}{mark}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--requests", type=int, default=96, help="at each number at once")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS / "simulate.json")
    return parser.parse_args()


async def observe(options: argparse.Namespace) -> dict[int, Observed]:
    """Drive the real service with each number of requests at once."""
    service = with_engine(read_service(options.file), max_running=AT_ONCE[-1])
    async with contextlib.AsyncExitStack() as stack:
        side = await started(stack, service, "serial", ARRANGEMENT)
        await drive(side, AT_ONCE[-1], 2 * AT_ONCE[-1], options.max_tokens)
        return {n: await drive(side, n, options.requests, options.max_tokens) for n in AT_ONCE}


async def drive(side: Service, at_once: int, requests: int, tokens: int) -> Observed:
    """Keep `at_once` requests running until so many have ended."""
    before = (await side.counts()).target
    chosen = itertools.cycle(prompts())
    left = iter(range(requests))
    latencies, sizes = [], []

    async def client() -> None:
        for _ in left:
            began = time.monotonic()
            result = await side.client.complete(
                [Message("user", next(chosen).text)],
                max_tokens=tokens,
                sampling=MODES["greedy"],
                ignore_end=True,
            )
            latencies.append(time.monotonic() - began)
            sizes.append(result.usage.prompt_tokens)

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(at_once)))
    seconds = time.monotonic() - began
    counted = difference(before, (await side.counts()).target)
    return Observed(seconds, tuple(latencies), tuple(sizes), tokens, counted)


def figures_of(observed: Observed) -> Figures:
    """Return the figures of a measured run."""
    known = sorted(observed.latencies)
    return Figures(
        observed.tokens * len(known) / observed.seconds,
        known[math.ceil(0.99 * len(known)) - 1],
        sum(known) / len(known),
        observed.counters.tokens / observed.counters.passes,
    )


def simulate(
    at_once: int,
    pair: dict[str, float],
    observed: dict[int, Observed],
    rows: RowTimes,
    folder: Path,
) -> Figures:
    """Return the figures of a simulated run of as many seconds as the measured one, at least 20."""
    seconds = max(20.0, observed[at_once].seconds)
    wanted = described(at_once, pair, observed, rows, seconds)
    found = summary(wanted, [cell_figures(run_cell(wanted, folder))])
    return Figures(
        found["tokens_per_second"],
        found["latency_seconds"]["p99"],
        found["latency_seconds"]["mean"],
        found["speculation"]["tokens_per_pass"],
    )


def compared(measured: dict[int, Figures], simulated: dict[int, Figures]) -> dict[str, float]:
    """Return each simulated figure by the measured one."""
    names = ("tokens_per_second", "p99_seconds", "mean_seconds", "tokens_per_pass")
    return {
        f"simulated_vs_measured_{name}_{n}": getattr(simulated[n], name) / getattr(one, name)
        for n, one in measured.items()
        for name in names
    }


if __name__ == "__main__":
    sys.exit(main())
