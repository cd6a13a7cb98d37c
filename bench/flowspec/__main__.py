"""A pipelined target beside others: plain, in rounds, pruned, FlowSpec's, a layer a step.

A simulation in virtual time (`bench.flowspec`): this project's side runs the product's own leader,
stages and draft scheduler; only clock, transport and forward passes are not real. All times of
stages, the demo's too, are assumed. `--tensor` sets it beside tensor parallelism over the same
devices and links instead.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.flowspec.cells import MAKERS, Job, cell, cut_both_ways, languages
from bench.flowspec.language import drawn_guesses
from bench.flowspec.plots import plot
from bench.flowspec.setting import Links, jetson_7b, jetson_13b
from bench.flowspec.sides import Cell, continuous, figures, rounds
from bench.record.pictures import put_title
from bench.record.report import RESULTS, write_run

ACCEPTANCE_3 = 0.35, 0.15
"""Sureness, and share of places without a right guess, of a draft whose rounds, with the paper's
sizes, commit 3 tokens each. With right guesses everywhere they commit 3.7 or more."""
TOKENS, TEXTS, PAPER_TEXTS = 128, 1, 6
RATES = (150e6, 1e9)
DELAYS = (0.0, 10e-3)
PAPER_STAGES = 4
"""And a rank for the draft: the paper's five."""


def compare_cuts(options: argparse.Namespace) -> int:
    """Set both ways to cut a target beside each other; write `results/flowspec_tensor.json`."""
    load, cells, by_delay = os.getloadavg(), [], dict[float, list[float]]()
    with ProcessPoolExecutor(options.processes) as pool:
        for job, ours, other in pool.map(cut_both_ways, jobs(options)):
            ratio = ours.tokens_per_second / other.tokens_per_second
            by_delay.setdefault(job.links.delay, []).append(ratio)
            found = {"continuous": asdict(ours), "tensor": asdict(other)}
            names = {"setting": job.setting, "stages": job.stages, "links": str(job.links)}
            cells.append(names | found)
            print(f"{job.setting}, {job.stages} devices, {job.links}: {ratio:.3g}", flush=True)
    ratios = {}
    for delay, each in by_delay.items():
        name = f"continuous_vs_best_tensor_{1e3 * delay:g}_ms"
        ratios[f"{name}_mean"] = float(np.exp(np.mean(np.log(each))))
        ratios[f"{name}_least"] = min(each)
    write_run(
        options.out.with_name(f"{options.out.stem}_tensor.json"),
        "flowspec",
        {"sweep": cells},
        ratios,
        load,
    )
    sides = [one[side] for one in cells for side in ("continuous", "tensor")]
    return 0 if all(side["same_text"] for side in sides) else 1


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield the cells of the sweep."""
    for name in MAKERS:
        for stages in options.stages:
            for rate in RATES:
                for delay in options.delays:
                    yield Job(name, stages, Links(rate, delay), options.tokens, options.texts)


def paper_jobs(options: argparse.Namespace) -> list[Job]:
    """Return the cells of the paper's setting: its boards, links and stages, with more texts."""
    links = Links(150e6, 0.0)
    return [
        Job(name, PAPER_STAGES, links, options.tokens, PAPER_TEXTS * options.texts)
        for name in MAKERS
        if name != "demo"
    ]


def busy_at_acceptance_3(tokens: int, texts: int) -> dict[str, Any]:
    """Return how busy stages are where a round of the paper's commits 3 tokens."""
    texts_of = languages(drawn_guesses(*ACCEPTANCE_3), tokens, texts)
    found: dict[str, Any] = {}
    for make in (jetson_7b, jetson_13b):
        for stages in (2, PAPER_STAGES, 5, 8):
            setting = make(stages)
            ours = figures(continuous, setting, texts_of)
            theirs = figures(rounds(16, 80, 6), setting, texts_of)
            found[f"{setting.name}, {stages} stages"] = {
                "busy": ours.busy,
                "busy_of_rounds": theirs.busy,
                "tokens_per_round": theirs.tokens_per_commit,
            }
    return found


def ratios(
    cells: Sequence[Cell], paper: Mapping[str, Cell], busy: Mapping[str, Any]
) -> dict[str, float]:
    """Return what may be quoted."""
    found = {}
    for side in ("continuous", "flowspec", "layer_a_step"):
        own = [
            (one.best if side == "continuous" else one.paper)[side].tokens_per_second
            / one.paper["rounds"].tokens_per_second
            for one in paper.values()
        ]
        found[f"{side}_vs_papers_rounds"] = float(np.mean(own))
    for other in ("rounds", "flowspec", "layer_a_step", "plain"):
        each = [one.ratio("continuous", other) for one in cells]
        found[f"continuous_vs_best_{other}_mean"] = float(np.exp(np.mean(np.log(each))))
        found[f"continuous_vs_best_{other}_least"] = min(each)
    found["bytes_vs_papers_flowspec"] = float(
        np.mean(
            [
                one.best["continuous"].bytes_per_token / one.paper["flowspec"].bytes_per_token
                for one in paper.values()
            ]
        )
    )
    found["least_busy_at_acceptance_3"] = min(one["busy"] for one in busy.values())
    return found


def main() -> int:
    """Simulate, print, and write `results/flowspec.json`; return 1 where a text differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.flowspec", description=__doc__)
    parser.add_argument("--stages", type=int, nargs="+", default=list(range(2, 9)))
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS, help="seconds")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=RESULTS / "flowspec.json")
    parser.add_argument("--tensor", action="store_true", help="the other way to cut a target")
    options = parser.parse_args()
    if options.tensor:
        return compare_cuts(options)
    load = os.getloadavg()
    cells = []
    with ProcessPoolExecutor(options.processes) as pool:
        paper = {one.setting: one for one in pool.map(cell, paper_jobs(options))}
        for one in paper.values():
            print(line_of(one), flush=True)
        for one in pool.map(cell, jobs(options)):
            cells.append(one)
            print(line_of(one), flush=True)
    busy = busy_at_acceptance_3(options.tokens, PAPER_TEXTS * options.texts)
    found = ratios(cells, paper, busy)
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    write_run(
        options.out,
        "flowspec",
        {
            "paper": {name: asdict(one) for name, one in paper.items()},
            "sweep": [asdict(one) for one in cells],
            "busy_at_acceptance_3": busy,
        },
        found,
        load,
    )
    plot(cells, paper, options.out.with_suffix(".png"))
    put_title(options.out)
    return 0 if same_texts([*paper.values(), *cells]) else 1


def same_texts(cells: Sequence[Cell]) -> bool:
    """Return whether every side wrote the text of plain decoding, with best and paper's sizes."""
    sides = (side for one in cells for side in (*one.best.values(), *one.paper.values()))
    return all(side.same_text for side in sides)


def line_of(one: Cell) -> str:
    """Return a cell in a line: tokens a second of each side."""
    rates = "  ".join(f"{side} {f.tokens_per_second:.3g}" for side, f in one.best.items())
    return f"{one.setting}, {one.stages} stages, {one.links}: {rates}"


if __name__ == "__main__":
    sys.exit(main())
