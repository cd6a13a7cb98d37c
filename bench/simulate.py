"""The simulator beside the service that it simulates: `python -m bench.simulate`.

In rounds: measures the pair's step costs, then keeps 1, 4 and 16 requests running on the real
service, one process with one thread. The simulator gets the step costs of each round, host and
server time as the service counts them, and, at one request at a time, the pair's acceptance, how
much answers differ, and how much plain decoding does: that is the machine. What passes take beyond
step costs is taken from one and from 16 requests, as host time is. It has to foretell tokens per
second and the 99th percentile of latency at all three. What else the machine does changes from
minute to minute, so each round is compared with its own figures. Draft tokens are the draft's alone
on both sides: the simulator's language has no text that repeats. A round takes three to five
minutes, and the simulations as much again.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report import RESULTS, prompts, write_report
from bench.sides import MODES, SERVICE, Service, started, with_engine, with_speculation
from bench.simulate_model import (
    NO_MORE,
    THREADS,
    MoreSeconds,
    Observed,
    RowTimes,
    StepSeconds,
    described,
    fitted,
    row_times,
)
from outrider.cli import profile as profiling
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.service_file import read_service
from outrider.cli.top import difference
from outrider.client import Message
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement
from outrider.operator.spec.speculation import Source
from outrider.simulator.cell import Cell
from outrider.simulator.clients import Clients
from outrider.simulator.service import policy_of

REQUESTS = {1: 200, 4: 200, 16: 256}
"""By the number at once: those that end in one round; enough that the 99th percentile is not the
slowest of all, which on a shared machine is luck."""
AT_ONCE = tuple(REQUESTS)
PLAIN = 60
"""Requests without drafts, one at a time, by which the machine's own variation is known."""
ARRANGEMENT = Arrangement(Placement.COLOCATED, THREADS)
VOCABULARY, OUTPUTS = 49_152, 8_192
"""Of SmolLM2, and of its draft."""
SEED = 1
"""Of the prompts that are drawn."""
BOUND = 0.1
"""Share by which a figure may miss the measured one."""
CORRECTIONS = 6
"""Runs by which it is found what passes take beyond step costs."""
SIMULATED = 2
"""Simulated requests for each measured one, so that the slowest one's luck counts less."""
SLICE_SECONDS = 0.002
"""Virtual seconds after which it is asked how many requests have ended."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared."""

    tokens_per_second: float
    p99_seconds: float
    mean_seconds: float
    first_token_seconds: float
    """The mean, in the engine."""
    tokens_per_pass: float
    step: StepSeconds


@dataclass(frozen=True, slots=True)
class Round:
    """Step costs as `outrider profile` prints them, and what was measured right after."""

    costs: dict[str, Any]
    plain: Observed
    """Without drafts, one request at a time."""
    observed: dict[int, Observed]


def main() -> int:
    """Measure, simulate, write JSON and print a table."""
    options = parse()
    load = os.getloadavg()
    began = time.monotonic()
    rounds = asyncio.run(observe(options))
    rows = row_times(VOCABULARY, OUTPUTS)
    measured = [{n: figures_of(one.observed[n]) for n in AT_ONCE} for one in rounds]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = [pair_of(one, rows, folder) for one in rounds]
        simulated = [simulate(*both, rows, folder) for both in zip(rounds, pairs, strict=True)]
    errors = [compared(*both) for both in zip(measured, simulated, strict=True)]
    ratios = {name: statistics.median(one[name] for one in errors) for name in errors[0]}
    write_report(
        options.out,
        command="python -m bench.simulate " + " ".join(sys.argv[1:]),
        results={
            "measured": [{n: asdict(one) for n, one in by.items()} for by in measured],
            "simulated": [{n: asdict(one) for n, one in by.items()} for by in simulated],
            "simulated_vs_measured": errors,
            "server_seconds": [
                {n: one.observed[n].server_seconds for n in AT_ONCE} for one in rounds
            ],
            "plain_decoding_variation": [one.plain.decoding_variation for one in rounds],
            "pairs": pairs,
            "row_seconds": asdict(rows),
            "seconds": time.monotonic() - began,
        },
        ratios=ratios,
        load_average=load,
    )
    show(ratios, errors, measured, simulated)
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of a round")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS / "simulate.json")
    return parser.parse_args()


async def observe(options: argparse.Namespace) -> list[Round]:
    """Measure step costs and drive the real service with each number of requests, in turns."""
    service = with_engine(read_service(options.file), max_running=AT_ONCE[-1], prefix_cache=False)
    service = with_speculation(service, sources=(Source.DRAFT,))
    rounds = []
    async with contextlib.AsyncExitStack() as stack:
        say("starting the service")
        side = await started(stack, service, "serial", ARRANGEMENT)
        await drive(side, AT_ONCE[-1], AT_ONCE[-1], options)
        for number in range(1, options.rounds + 1):
            say(f"round {number} of {options.rounds}: step costs")
            costs = await profiling.profile(options.file, PlanOptions(), quick=True)
            say(f"{PLAIN} requests without drafts, 1 at once")
            plain = await drive(side, 1, round(PLAIN * options.share), options, speculate=False)
            rounds.append(Round(costs, plain, await observe_all(side, options)))
    return rounds


async def observe_all(side: Service, options: argparse.Namespace) -> dict[int, Observed]:
    """Drive the service with each number of requests."""
    observed = {}
    for at_once, count in REQUESTS.items():
        count = max(at_once, round(count * options.share))
        say(f"{count} requests, {at_once} at once")
        observed[at_once] = await drive(side, at_once, count, options)
    return observed


def say(words: str) -> None:
    """Tell who waits what is being done."""
    print(words, file=sys.stderr, flush=True)


async def drive(
    side: Service,
    at_once: int,
    requests: int,
    options: argparse.Namespace,
    speculate: bool = True,
) -> Observed:
    """Keep `at_once` requests running until so many have ended that did not begin together.

    Prompts are drawn, the same ones each time: in their order, long ones come together.
    """
    before = (await side.counts()).target
    draw, known = random.Random(SEED), prompts()
    ended: list[tuple[float, float, float, float, int]] = []
    began = time.monotonic()

    async def client() -> None:
        while len(ended) < at_once + requests:
            asked = time.monotonic()
            result = await side.client.complete(
                [Message("user", draw.choice(known).text)],
                max_tokens=options.max_tokens,
                sampling=MODES["greedy"],
                ignore_end=True,
                speculate=speculate,
            )
            now, timing = time.monotonic(), result.timing
            inside = timing.total_seconds, timing.first_token_seconds
            ended.append((now - began, now - asked, *inside, result.usage.prompt_tokens))

    await asyncio.gather(*(client() for _ in range(at_once)))
    counted = difference(before, (await side.counts()).target)
    together = ended[at_once - 1][0]
    times, latencies, insides, firsts, sizes = zip(
        *ended[at_once : at_once + requests], strict=True
    )
    seconds = times[-1] - together
    return Observed(seconds, latencies, insides, firsts, sizes, options.max_tokens, counted)


def figures_of(observed: Observed) -> Figures:
    """Return the figures of a measured run."""
    return figures(
        observed.latencies,
        observed.firsts,
        observed.tokens * len(observed.latencies) / observed.seconds,
        observed.counters.tokens / observed.counters.passes,
        observed.step,
    )


def figures(
    latencies: Sequence[float],
    firsts: Sequence[float],
    rate: float,
    tokens_per_pass: float,
    step: StepSeconds,
) -> Figures:
    """Return the figures of a run, measured or simulated."""
    known = sorted(latencies)
    p99 = known[math.ceil(0.99 * len(known)) - 1]
    means = statistics.fmean(known), statistics.fmean(firsts)
    return Figures(rate, p99, *means, tokens_per_pass, step)


def write_costs(one: Round, folder: Path) -> None:
    """Write the step costs of a round where simulations look for them."""
    (folder / "costs.json").write_text(json.dumps(one.costs))


def pair_of(one: Round, rows: RowTimes, folder: Path) -> dict[str, float]:
    """Return the pair that does as the real one did in a round."""
    say("looking for the pair's acceptance in simulation")
    write_costs(one, folder)
    return fitted(one.observed, rows, folder, one.plain.decoding_variation)


def simulate(
    one: Round, pair: Mapping[str, float], rows: RowTimes, folder: Path
) -> dict[int, Figures]:
    """Return the figures of simulated runs of as many requests as in a round."""
    write_costs(one, folder)
    machine, ends = one.plain.decoding_variation, (AT_ONCE[0], AT_ONCE[-1])

    def run(at_once: int, more: MoreSeconds) -> Figures:
        return simulated(at_once, pair, one.observed, rows, folder, more, machine)

    measured, more = {n: one.observed[n].step for n in ends}, NO_MORE
    for _ in range(CORRECTIONS):
        more = more.corrected(measured, {n: run(n, more).step for n in ends})
    return {n: run(n, more) for n in AT_ONCE}


def simulated(
    at_once: int,
    pair: Mapping[str, float],
    observed: Mapping[int, Observed],
    rows: RowTimes,
    folder: Path,
    more: MoreSeconds = NO_MORE,
    machine: float = 0.0,
) -> Figures:
    """Return the figures of a simulated run that ends when `SIMULATED` times as many requests
    have ended as in the measured one; `machine`: variation of equal passes."""
    wanted = described(at_once, pair, observed, rows, 1.0, more, machine)
    clients, requests = Clients(wanted, folder), SIMULATED * len(observed[at_once].latencies)
    cell = Cell(wanted, policy_of(wanted), folder, clients.receive)
    clients.begin(cell)
    while len(clients.answers) < at_once + requests:
        cell.clock.run(cell.clock.now + SLICE_SECONDS)
    together, answers = clients.answers[at_once - 1], clients.answers[at_once:][:requests]
    (target,) = cell.targets
    counters = target.scheduler.report().counters
    seconds = StepSeconds.of(counters, target.engine.host_spent_seconds)
    latencies = [one.seconds for one in answers]
    firsts = [one.message.timing.first_token_seconds for one in answers]
    rate = observed[at_once].tokens * requests / (answers[-1].ended - together.ended)
    return figures(latencies, firsts, rate, counters.tokens / counters.passes, seconds)


def compared(measured: dict[int, Figures], simulated: dict[int, Figures]) -> dict[str, float]:
    """Return each simulated figure by the measured one."""
    names = (
        "tokens_per_second",
        "p99_seconds",
        "mean_seconds",
        "first_token_seconds",
        "tokens_per_pass",
    )
    return {
        f"simulated_vs_measured_{name}_{n}": getattr(simulated[n], name) / getattr(one, name)
        for n, one in measured.items()
        for name in names
    }


def show(
    ratios: Mapping[str, float],
    errors: Sequence[Mapping[str, float]],
    measured: Sequence[Mapping[int, Figures]],
    simulated: Sequence[Mapping[int, Figures]],
) -> None:
    """Print the errors, their range over rounds, and where the time of a step goes."""
    for name, value in ratios.items():
        every = [one[name] for one in errors]
        mark = "" if abs(value - 1) <= BOUND or "pass" in name else "   misses"
        print(f"{name:40} {value:.3f} ({min(every):.3f} to {max(every):.3f}){mark}")
    for n in AT_ONCE:
        for words, rounds in (("measured", measured), ("simulated", simulated)):
            parts = [asdict(one[n].step) for one in rounds]
            means = {name: statistics.mean(part[name] for part in parts) for name in parts[0]}
            spelt = ", ".join(f"{name} {1e3 * value:.2f}" for name, value in means.items())
            print(f"{n:3} at once, ms of a step {words:9}: {spelt}")


if __name__ == "__main__":
    sys.exit(main())
