"""Tokens per second by requests at once: `python -m bench.batching`.

One engine answers the same prompts by plain decoding, with a verify budget that is split evenly
over the sequences, and with one budget that goes where acceptance is likeliest. Every text is
checked against the one that its request gets alone.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.pictures import put_title
from bench.report import RESULTS, Spread, median_and_range, prompts, write_report
from bench.serial import InTurn, timed
from outrider.cli import processors
from outrider.cli.service_file import read_service
from outrider.worker.api.text import Message
from outrider.worker.speculation.planner import Candidates, Goodput, RowPlan, Seconds, best_count

SERVICE = Path(__file__).parent.parent / "examples" / "smollm2.yaml"
AT_ONCE = (1, 2, 4, 8, 16)
SIDES = ("plain", "equal split", "shared budget")


class EqualSplit(Goodput):
    """Goodput's rule, but all sequences get as many rows: the best number for their mean."""

    def plan(self, candidates: list[Candidates], costs: Seconds, max_rows: int) -> RowPlan:
        """As `Goodput.plan`."""
        if not candidates:
            return super().plan(candidates, costs, max_rows)
        each = min(max_rows, (len(costs) - 1) // len(candidates))
        reach = np.zeros(each, np.float32)
        for one in candidates:
            own = one.reach[:each]
            reach[: len(own)] += own
        k, value = best_count(reach, costs[:: len(candidates)].copy(), self.rate)
        return RowPlan(np.array([min(k, len(one.reach)) for one in candidates], np.int32), value)


def main() -> int:
    """Measure, write JSON and plot, print a table."""
    options = parse()
    load = os.getloadavg()
    measured = run(options)
    ratios = all_ratios(measured)
    write_report(
        options.out,
        command="python -m bench.batching " + " ".join(sys.argv[1:]),
        results=measured,
        ratios=ratios,
        load_average=load,
    )
    plot(measured, options.out.with_suffix(".png"))
    put_title(options.out)
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, default=RESULTS / "batching.json")
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return rates by requests at once and side, alternating within each repetition."""
    engine = InTurn.start(
        read_service(options.file), processors.count(), max_running=AT_ONCE[-1], prefix_cache=False
    )
    asked = [engine.prompt(Message("user", p.text)) for p in prompts()[: options.prompts]]
    alone = [one.tokens for one in engine.run(asked, options.max_tokens, 1, speculate=False)]
    rates: dict[int, dict[str, list[float]]] = {n: {s: [] for s in SIDES} for n in AT_ONCE}
    passes: dict[int, dict[str, list[float]]] = {n: {s: [] for s in SIDES} for n in AT_ONCE}
    same = []
    for repetition in range(options.repetitions):
        for at_once in AT_ONCE:
            print(f"repetition {repetition + 1}, {at_once} at once", file=sys.stderr)
            first = repetition % len(SIDES)
            for side in (*SIDES[first:], *SIDES[:first]):
                use_planner(engine, side)
                seconds, answers = timed(
                    lambda at_once=at_once, side=side: engine.run(
                        asked, options.max_tokens, at_once, side != "plain"
                    )
                )
                tokens = sum(a.end.usage.completion_tokens for a in answers)
                rates[at_once][side].append(tokens / seconds)
                verified = sum(a.end.usage.passes for a in answers)
                passes[at_once][side].append((tokens - len(answers)) / verified)
                same += [a.tokens == text for a, text in zip(answers, alone, strict=True)]
    return {
        "same_text": statistics.mean(same),
        "tokens_per_second": spreads(rates),
        "tokens_per_pass": spreads(passes),
        "step_seconds": engine.turns.target.row_selector.costs.to_json(),
    }


def use_planner(engine: InTurn, side: str) -> None:
    """Give the target the planner of a side, with what has been learnt so far."""
    row_selector = engine.turns.target.row_selector
    kind = EqualSplit if side == "equal split" else Goodput
    if type(row_selector.planner) is not kind:
        row_selector.planner = kind(row_selector.planner.plain_rate)


def spreads(values: dict[int, dict[str, list[float]]]) -> dict[int, dict[str, Spread]]:
    """Median and range of each cell."""
    return {n: {s: median_and_range(v) for s, v in by.items()} for n, by in values.items()}


def all_ratios(measured: dict[str, Any]) -> dict[str, float]:
    """Return what may be quoted."""
    rates = measured["tokens_per_second"]
    alone = rates[AT_ONCE[0]]["plain"].median
    ratios = {}
    for n in AT_ONCE:
        plain, equal, shared = (rates[n][side].median for side in SIDES)
        ratios[f"shared_vs_plain_{n}"] = shared / plain
        ratios[f"shared_vs_equal_{n}"] = shared / equal
        ratios[f"plain_{n}_vs_plain_1"] = plain / alone
    return ratios


def plot(measured: dict[str, Any], file: Path) -> None:
    """Tokens per second by requests at once, with ranges."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for side in SIDES:
        found = [measured["tokens_per_second"][n][side] for n in AT_ONCE]
        middle = [f.median for f in found]
        low = [f.median - f.low for f in found]
        high = [f.high - f.median for f in found]
        axes.errorbar(AT_ONCE, middle, (low, high), label=side, marker="o", capsize=3)
    axes.set_xscale("log", base=2)
    axes.set_xticks(AT_ONCE, [str(n) for n in AT_ONCE])
    axes.set_xlabel("requests at once")
    axes.set_ylabel("tokens per second, all requests together")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
