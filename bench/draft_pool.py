"""How many drafts a fleet needs, in simulation: `python -m bench.draft_pool`.

Eight targets of four GPUs each share one, two, four or eight drafts of one GPU, or have one each of
their own, or none, while 1, 4 and 16 requests run at each. Then fleets of 10 to 10,000 GPUs are
filled with such groups, and what is left over is paid for, too. Real schedulers over step costs of
arithmetic (examples/simulate/llama-70b.yaml); the same seeds give the same figures. Each is the
mean of runs with several seeds, and has their standard error.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.pictures import put_title
from bench.report import RESULTS, write_report
from outrider.simulator.description import Simulation, read_simulation
from outrider.simulator.figures import cell_figures, summary
from outrider.simulator.run import run_cell

EXAMPLE = Path(__file__).parent.parent / "examples" / "simulate" / "llama-70b.yaml"
AT_ONCE = (1, 4, 16)
"""Requests that run at each target."""
FLEETS = (10, 30, 100, 300, 1000, 3000, 10_000)
"""GPUs."""


@dataclass(frozen=True, slots=True)
class Group:
    """Targets, and the drafts that all of them use."""

    targets: int
    drafts: int

    @property
    def name(self) -> str:
        """As tables and plots have it."""
        if self.drafts == 0:
            return "no draft"
        if self.targets == 1:
            return "a draft for each target"
        return f"{self.drafts} for {self.targets} targets, shared"


OWN = Group(1, 1)
PLAIN = Group(1, 0)
GROUPS = (PLAIN, OWN, Group(8, 8), Group(8, 4), Group(8, 2), Group(8, 1))


@dataclass(frozen=True, slots=True)
class Found:
    """What a group came to under one load."""

    tokens_per_second: float
    """Of one target."""
    draft_busy: float
    tokens_per_pass: float
    gpus: float
    """Of one target, with its share of drafts."""
    price_per_million: float
    """In GPU hours at the price of one each."""
    relative_error: float = 0.0
    """Standard error of the rate, and so of the price, over runs with several seeds."""


def main() -> int:
    """Simulate, write JSON and plot, print tables."""
    options = parse()
    load = os.getloadavg()
    found = simulated_all(options)
    fleets = {n: {gpus: cheapest(found[n], gpus) for gpus in FLEETS} for n in AT_ONCE}
    ratios = compared(found)
    write_report(
        options.out,
        command="python -m bench.draft_pool " + " ".join(sys.argv[1:]),
        results={
            "groups": {
                n: {group.name: asdict(one) for group, one in by.items()} for n, by in found.items()
            },
            "fleets": fleets,
        },
        ratios=ratios,
        load_average=load,
    )
    plot(found, options.out.with_suffix(".png"))
    put_title(options.out)
    show(found, fleets)
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=EXAMPLE)
    parser.add_argument("--seconds", type=float, default=20.0, help="virtual, of each run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each group and load")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=RESULTS / "draft_pool.json")
    return parser.parse_args()


def simulated_all(options: argparse.Namespace) -> dict[int, dict[Group, Found]]:
    """Return what all groups come to, by load; runs are shared out over processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        runs = {
            (n, group): [
                pool.submit(simulated, group, n, options, seed) for seed in range(options.seeds)
            ]
            for n in AT_ONCE
            for group in GROUPS
        }
        return {
            n: {group: mean([run.result() for run in runs[n, group]]) for group in GROUPS}
            for n in AT_ONCE
        }


def mean(runs: Sequence[Found]) -> Found:
    """Return the means of several runs, and the error of their rates."""
    fields = [asdict(one) for one in runs]
    whole = Found(**{name: statistics.mean(one[name] for one in fields) for name in fields[0]})
    if len(runs) < 2:
        return whole
    rates = [one.tokens_per_second for one in runs]
    error = statistics.stdev(rates) / math.sqrt(len(rates)) / whole.tokens_per_second
    return replace(whole, relative_error=error)


def described(group: Group, at_once: int, options: argparse.Namespace, seed: int = 0) -> Simulation:
    """Return the simulation of one group: the file's, with other replicas, load and seed."""
    whole = read_simulation(options.file).model_dump(by_alias=True, mode="json", exclude_none=True)
    whole["target"]["replicas"] = group.targets
    whole["seconds"] = options.seconds
    whole["seed"] += seed
    whole["speculation"]["mode"] = "Static"
    traffic = {key: whole["traffic"][key] for key in ("promptTokens", "answerTokens")}
    whole["traffic"] = traffic | {"concurrency": at_once * group.targets}
    whole.pop("sample", None)
    if group.drafts:
        changed = {"replicas": group.drafts, "minReplicas": group.drafts}
        whole["draft"] |= changed | {"maxRunning": max(64, at_once * group.targets)}
    else:
        del whole["draft"]
    return Simulation.model_validate(whole)


def simulated(group: Group, at_once: int, options: argparse.Namespace, seed: int) -> Found:
    """Return what a group comes to in one run."""
    print(f"{group.name}, {at_once} at once, seed {seed}", file=sys.stderr)
    wanted = described(group, at_once, options, seed)
    figures = summary(wanted, [cell_figures(run_cell(wanted, options.file.parent))])
    rate = figures["tokens_per_second"] / group.targets
    gpus = sum(figures["gpus"].values()) / group.targets
    return Found(
        tokens_per_second=rate,
        draft_busy=figures["draft_busy"] or 0.0,
        tokens_per_pass=figures["speculation"]["tokens_per_pass"],
        gpus=gpus,
        price_per_million=gpus * 1e6 / (3600 * rate),
    )


def cheapest(found: dict[Group, Found], gpus: int) -> dict[str, Any]:
    """Return the group with which a fleet of so many GPUs pays least for a million tokens."""
    prices = {group: fleet_price(group, one, gpus) for group, one in found.items()}
    best = min(prices, key=lambda group: prices[group])
    own, plain = prices[OWN], prices[PLAIN]
    count = gpus // round(found[best].gpus * best.targets)
    return {
        "best": best.name,
        "targets": count * best.targets,
        "drafts": count * best.drafts,
        "price_per_million": prices[best],
        "own_by_best": own / prices[best],
        "plain_by_best": plain / prices[best],
    }


def fleet_price(group: Group, one: Found, gpus: int) -> float:
    """Return GPU hours of a million tokens of a fleet; GPUs that are left over are paid for.

    Infinite where not even one group fits.
    """
    whole = gpus // round(one.gpus * group.targets)
    if whole == 0:
        return float("inf")
    return gpus * 1e6 / (3600 * whole * group.targets * one.tokens_per_second)


def compared(found: dict[int, dict[Group, Found]]) -> dict[str, float]:
    """Return prices of a million tokens by that of a draft for each target."""
    return {
        f"price_{group.name.replace(' ', '_').replace(',', '')}_vs_own_{n}": one.price_per_million
        / by[OWN].price_per_million
        for n, by in found.items()
        for group, one in by.items()
        if group != OWN
    }


def show(found: dict[int, dict[Group, Found]], fleets: dict[int, dict[int, Any]]) -> None:
    """Print a line for each group and load, and for each fleet."""
    for n, by in found.items():
        for group, one in by.items():
            print(
                f"{n:3} at once, {group.name:26} {one.tokens_per_second:7.0f} tokens/s a target, "
                f"{one.tokens_per_pass:.2f} a pass, drafts busy {one.draft_busy:4.0%}, "
                f"{one.price_per_million:6.2f} GPU h a million (error {one.relative_error:.1%})"
            )
        for gpus, best in fleets[n].items():
            print(
                f"{n:3} at once, {gpus:6} GPUs: {best['best']} ({best['targets']} targets, "
                f"{best['drafts']} drafts); a draft each costs {best['own_by_best']:.2f} times, "
                f"none {best['plain_by_best']:.2f} times"
            )


def plot(found: dict[int, dict[Group, Found]], path: Path) -> None:
    """GPU hours of a million tokens by the group, a line for each load."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    names = [group.name for group in GROUPS]
    for n, by in found.items():
        prices = [by[group].price_per_million / by[PLAIN].price_per_million for group in GROUPS]
        errors = [
            2 * by[group].relative_error * price
            for group, price in zip(GROUPS, prices, strict=True)
        ]
        label = f"{n} requests at a target"
        axis.errorbar(names, prices, errors, marker="o", capsize=3, label=label)
    axis.set_ylabel("GPU hours a million tokens, by plain decoding's")
    axis.set_ylim(bottom=0)
    axis.tick_params(axis="x", labelrotation=20)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
