"""Where speculation pays, by how much larger the target is: `python -m bench.proportion`.

Targets of 1, 3 and 8 times the demo's depth, made of it by layers that change no text
(`inert_layers`), so that acceptance stays and only the proportion of target and draft differs. Each
runs in every arrangement: plain with one thread and with all, target and draft in turns in one
process, and in two. Beside what was measured stands what step costs and acceptance predict.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.proportion.figures import PLAIN, all_ratios, mean_of, of_depth
from bench.proportion.inert_layers import MAX_CONTEXT, NODES_AHEAD, deeper
from bench.record.pictures import put_title
from bench.record.report import RESULTS, headless_pyplot, prompts, write_run
from bench.sides.services import MODES, SERVICE, Service, started, with_engine, with_speculation
from bench.speculation.arrangements import ARRANGEMENTS, QUOTED, plain_arrangements, repeat
from outrider.cli.service.file import read_service
from outrider.operator.spec import SpeculativeService


def main() -> int:
    """Measure every depth, write JSON and plot, print a table."""
    options = parse()
    load = os.getloadavg()
    results = {depth: asyncio.run(measure(depth, options)) for depth in options.depths}
    modes = {depth: found["modes"] for depth, found in results.items()}
    ratios = all_ratios(modes)
    write_run(options.out, "proportion", results, ratios, load)
    plot(modes, options.out.with_suffix(".png"))
    put_title(options.out)
    Console().print(table(modes))
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(prog="python -m bench.proportion", description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 3, 8])
    parser.add_argument("--nodes-ahead", type=int, help="instead of a number for each depth")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--sides", nargs="+", choices=ARRANGEMENTS, default=list(QUOTED))
    parser.add_argument("--keep", action="store_true", help="leave the deeper checkpoints there")
    parser.add_argument("--out", type=Path, default=RESULTS / "proportion.json")
    return parser.parse_args()


async def measure(depth: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one depth."""
    nodes_ahead = options.nodes_ahead or NODES_AHEAD.get(depth, 96)
    service = with_engine(read_service(options.file), max_context=MAX_CONTEXT, max_running=1)
    asked = with_speculation(service, nodes_ahead=nodes_ahead)
    with deeper(asked, depth, options) as (deep, size):
        async with contextlib.AsyncExitStack() as stack:
            sides = await all_sides(stack, deep, options.sides)
            chosen = prompts()[: options.prompts]
            for warm in sides.values():
                await warm.ask(chosen[0], options.max_tokens, MODES["greedy"])
            states = {name: await one.state() for name, one in sides.items()}
            measured = await repeat(dict(sides), chosen, options)
    steps = {name: state.step_seconds for name, state in states.items()}
    return {
        "nodes_ahead": nodes_ahead,
        "checkpoint_mb": round(size / 1e6),
        "modes": of_depth(measured, steps),
        "step_seconds": steps,
        "dtype": {name: state.dtype for name, state in states.items()},
    }


async def all_sides(
    stack: contextlib.AsyncExitStack, service: SpeculativeService, drafted: list[str]
) -> dict[str, Service]:
    """Start every arrangement of one target."""
    found = dict(plain_arrangements()) | {name: ARRANGEMENTS[name] for name in drafted}
    return {name: await started(stack, service, name, how) for name, how in found.items()}


def table(depths: dict[int, dict[str, Any]]) -> Table:
    """Return tokens a second over plain decoding and, in brackets, what was predicted."""
    names = list(next(iter(next(iter(depths.values())).values()))["sides"])
    made = Table("over plain (predicted)", *(f"{depth} x" for depth in depths))
    for name in names:
        cells = [
            f"{mean_of(modes, name, 'over_plain'):.2f} "
            f"({mean_of(modes, name, 'predicted_over_plain'):.2f})"
            for modes in depths.values()
        ]
        made.add_row(name, *cells)
    return made


def plot(depths: dict[int, dict[str, Any]], path: Path) -> None:
    """Gains by depth: lines as measured, dotted as predicted."""
    pyplot = headless_pyplot()

    modes = list(next(iter(depths.values())))
    figure, axes = pyplot.subplots(1, len(modes), figsize=(9, 3.8), sharey=True, squeeze=False)
    for axis, mode in zip(axes[0], modes, strict=True):
        sides = next(iter(depths.values()))[mode]["sides"]
        for at, name in enumerate(name for name in sides if not name.startswith(PLAIN)):
            found = [values[mode]["sides"][name] for values in depths.values()]
            gains, predicted = (
                [one[key] for one in found] for key in ("over_plain", "predicted_over_plain")
            )
            axis.plot(list(depths), gains, marker="o", color=f"C{at}", label=name)
            axis.plot(list(depths), predicted, marker=".", linestyle=":", color=f"C{at}")
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_xticks(list(depths), [f"{depth} x" for depth in depths])
        axis.set_xlabel("layers of the target, by the demo's")
        axis.set_title(mode)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("tokens a second over plain decoding")
    axes[0][-1].legend(title="dotted: predicted", frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
