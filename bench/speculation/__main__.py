"""Plain decoding and every placement of the draft side by side: `python -m bench.speculation`.

Services run at once and are asked one after the other, each alone: the target by itself at its best
number of threads, target and draft `Colocated` on all threads, target and draft in two
processes that share the same threads, and each of these as an earlier commit has it, so that this
build is compared with something that stands still. Every answer of this build is checked against
plain decoding's.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.record.pictures import put_title
from bench.record.report import RESULTS, Prompt, headless_pyplot, prompts, write_run
from bench.sides.services import MODES, SERVICE, Service, Side, fastest, started
from bench.speculation.arrangements import ARRANGEMENTS, QUOTED, plain_arrangements, repeat
from bench.speculation.figures import all_ratios, sum_up
from bench.speculation.pinned import EXAMPLES, Pinned, checkout, pinned_service
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.operator.spec import SpeculativeService

PINNED = "7cc675dc"
"""The oldest commit whose command line has the modules that `pinned_peer` imports."""
CHOOSING = 3
"""Prompts that choose plain decoding's number of threads."""


@dataclass(frozen=True, slots=True)
class Sides:
    """All that are compared, in one order."""

    own: dict[str, Service]
    """Outrider's services by name; plain decoding comes first."""
    pinned: dict[str, Pinned]
    """Sides of the pinned commit by name, plain decoding first; empty: without that commit."""

    @property
    def all(self) -> dict[str, Side]:
        """By name."""
        return {**self.own, **self.pinned}

    @property
    def bases(self) -> dict[str, str]:
        """By what a ratio is called: the side that it is taken to."""
        plain = {"plain": next(iter(self.own))}
        return plain | ({"pinned_plain": next(iter(self.pinned))} if self.pinned else {})

    @property
    def pairs(self) -> dict[str, str]:
        """By name of a side with a draft: the pinned commit's."""
        named = {name: f"pinned {name}" for name in self.own if name in ARRANGEMENTS}
        return {name: other if other in self.pinned else "" for name, other in named.items()}


def main() -> int:
    """Measure, write JSON and plot, print tables."""
    options = parse()
    load = os.getloadavg()
    measured, sides = asyncio.run(run(options))
    ratios = all_ratios(measured["modes"], sides.bases, sides.pairs)
    write_run(options.out, "speculation", measured, ratios, load)
    plot(measured, options.out.with_suffix(".png"))
    put_title(options.out)
    for mode, values in measured["modes"].items():
        Console().print(table(mode, values))
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what that page quotes."""
    parser = argparse.ArgumentParser(prog="python -m bench.speculation", description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--sides", nargs="+", choices=ARRANGEMENTS, default=list(QUOTED))
    parser.add_argument("--pinned", default=PINNED, help="commit to compare with; none: without")
    parser.add_argument("--out", type=Path, default=RESULTS / "speculation.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> tuple[dict[str, Any], Sides]:
    """Start the sides, ask one after the other, and sum up; return that and the sides, ended."""
    tree = None if options.pinned == "none" else checkout(options.pinned)
    chosen = prompts()[: options.prompts]
    async with contextlib.AsyncExitStack() as stack:
        own = await own_sides(stack, read_service(options.file), options, chosen)
        pinned = {} if tree is None else await pinned_sides(stack, tree, options, chosen)
        sides = Sides(own, pinned)
        for warm in sides.all.values():
            await warm.ask(chosen[0], options.max_tokens, MODES["greedy"])
        states = {name: await one.state() for name, one in own.items()}
        facts = {name: one.peer.facts for name, one in pinned.items()}
        measured = await repeat(sides.all, chosen, options)
    steps = {name: state.step_seconds for name, state in states.items()}
    return {
        "modes": sum_up(measured, steps, sides.bases),
        "plain_side": next(iter(own)),
        "pinned": {"commit": options.pinned, "sides": facts},
        "step_seconds": steps,
        "dtype": {name: state.dtype for name, state in states.items()},
        "arrangements": {name: one.arrangement.name for name, one in own.items()},
    }, sides


async def own_sides(
    stack: contextlib.AsyncExitStack,
    service: SpeculativeService,
    options: argparse.Namespace,
    chosen: list[Prompt],
) -> dict[str, Service]:
    """Start this build's sides; the plain one is that with the better number of threads."""
    plain = {}
    for name, arrangement in plain_arrangements():
        plain[name] = await started(stack, service, name, arrangement)
    best = await fastest(plain, chosen[:CHOOSING], options.max_tokens)
    sides = {best: plain[best]}
    for name in options.sides:
        sides[name] = await started(stack, service, name, ARRANGEMENTS[name])
    return sides


async def pinned_sides(
    stack: contextlib.AsyncExitStack,
    tree: Path,
    options: argparse.Namespace,
    chosen: list[Prompt],
) -> dict[str, Pinned]:
    """Start the pinned commit's sides: plain decoding, and those that the page quotes.

    They read the service of the pinned commit itself unless another file is named.
    """
    file = tree / EXAMPLES / SERVICE.name if options.file == SERVICE else options.file.absolute()

    async def side(name: str, arrangement: Arrangement) -> Pinned:
        return await stack.enter_async_context(pinned_service(tree, file, name, arrangement))

    plain = {f"pinned {name}": await side(name, how) for name, how in plain_arrangements()}
    best = await fastest(plain, chosen[:CHOOSING], options.max_tokens)
    quoted = [name for name in QUOTED if name in options.sides]
    return {best: plain[best]} | {
        f"pinned {name}": await side(f"pinned {name}", ARRANGEMENTS[name]) for name in quoted
    }


def table(mode: str, values: dict[str, Any]) -> Table:
    """Return the figures of one mode, a column for each side."""
    made = Table(mode, *(name.replace("pinned ", "pinned\n") for name in values["sides"]))
    columns = [cells(values, name) for name in values["sides"]]
    for label in columns[0]:
        made.add_row(label, *(column[label] for column in columns))
    return made


def cells(values: dict[str, Any], name: str) -> dict[str, str]:
    """Return the figures of one side in one mode, as they are shown."""
    one, counted = values["sides"][name], values["sides"][name]["counted"] or {}
    latency = counted.get("growth_latency") or {}
    return {
        "over plain": f"{values['geometric_mean_over_plain'][name]:.2f}",
        "tokens per pass": f"{one['tokens_per_pass']:.2f}",
        "ms a pass": f"{one['milliseconds_per_pass']:.2f}",
        "waits, ms a pass": f"{one['wait_milliseconds_per_pass']:.2f}",
        "blind": _shown(counted.get("blind_share"), "{:.0%}"),
        "resting": _shown(counted.get("resting_share"), "{:.0%}"),
        "host, ms a pass": _shown(counted.get("host_ms_per_pass"), "{:.3f}"),
        "draft's host": _shown(counted.get("draft_host_ms_per_pass"), "{:.3f}"),
        "first growth, ms": _shown(latency.get("median_ms"), "{:.2f}"),
        "its 99th percentile": _shown(latency.get("p99_ms"), "{:.1f}"),
    }


def _shown(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)


def plot(measured: dict[str, Any], path: Path) -> None:
    """Bars of tokens per second with their ranges, and ceilings as ticks."""
    pyplot = headless_pyplot()

    modes = measured["modes"]
    figure, axes = pyplot.subplots(1, len(modes), figsize=(11, 3.6), sharey=True)
    for axis, (mode, values) in zip(axes, modes.items(), strict=True):
        for at, (name, s) in enumerate(values["sides"].items()):
            rate = s["tokens_per_second"]
            error = [[rate["median"] - rate["low"]], [rate["high"] - rate["median"]]]
            axis.bar(at, rate["median"], yerr=error, width=0.6, color=f"C{at}", capsize=4)
            if name in ARRANGEMENTS:
                top = values["ceiling_tokens_per_second"][name]
                axis.hlines(top, at - 0.35, at + 0.35, color="black", linestyle=":")
            ratio = values["geometric_mean_over_plain"][name]
            axis.text(at, rate["median"] / 2, f"{ratio:.2f} x", ha="center", color="white")
        names = [name.replace(" ", "\n") for name in values["sides"]]
        axis.set_xticks(range(len(names)), names, fontsize=8)
        axis.set_title(mode)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("tokens per second (dotted: ceiling)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
