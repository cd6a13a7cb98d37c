"""Whole steps through the GPU runner, timed against their roofline: `python -m bench.decode_step`.

Models have random weights in the shapes of Llama-3-8B (a target), SmolLM2-135M and Llama-3.2-1B (a
draft, which also grows trees, four passes a launch and one). A step is what an engine does with it:
rows staged, one pass, greedy tokens sampled and back on the host. The target also computes a chunk
of a prompt, by the kernels and by the vendor's library. Needs a CUDA device; writes
`bench/results/decode_step.json` and a plot. The goal is a step within 15 % of its roofline.

examples:
  python -m bench.decode_step
  python -m bench.decode_step --model Llama-3-8B --weights fp8 --context 4096
"""

import gc
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.gpu.cases.kernel_case import CONTEXTS, ROWS, Backing
from bench.gpu.device_run import (
    Entry,
    Task,
    can_plot,
    device,
    earlier,
    parser,
    saver,
    says_missing,
    sweep,
)
from bench.gpu.random_model import random_model
from bench.gpu.timed_steps import Timed, growing, one_step, prompt_chunk
from bench.record.report import RESULTS, headless_pyplot
from bench.roofline.work import LLAMA_1B, LLAMA_8B, PARTS, SMOLLM2_135M, Part, Shape, step, total
from outrider.contract.settings import PrefillKind
from outrider.worker.model.rows import CHUNK

REPORT = RESULTS / "decode_step.json"
COMMAND = "python -m bench.decode_step"
MODELS = (LLAMA_8B, LLAMA_1B, SMOLLM2_135M)
WEIGHTS = ("bf16", "fp8")
CHAINED = (1, 4)
"""Passes of a draft in one launch."""
WIDTHS = (1, 8)
"""Leaves of a draft's pass."""
MAX_ROWS = 128
GROWTH = 1024
"""Positions behind a context: nodes, and what is committed meanwhile."""
GOAL = 1.15
"""A step over its roofline, at most."""
Holding = Callable[[Shape, str], Any]
"""Gives a model; the one before is dropped."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the report and the plot."""
    wanted = parser(__doc__, COMMAND, REPORT)
    names = [shape.name for shape in MODELS]
    wanted.add_argument("--model", choices=names, action="append", help="only these")
    wanted.add_argument("--weights", choices=WEIGHTS, action="append", help="only these")
    wanted.add_argument("--context", type=int, action="append", help=f"default: {CONTEXTS}")
    wanted.add_argument(
        "--rows", type=int, action="append", help=f"rows of a step, default: {ROWS}"
    )
    options = wanted.parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    facts = device()
    contexts, rows = options.context or CONTEXTS, options.rows or ROWS
    save = saver(options, COMMAND, facts, "steps", {"goal": GOAL}, ratios)
    shapes = [shape for shape in MODELS if shape.name in (options.model or names)]
    model, part = held(max(contexts), max(MAX_ROWS, *rows)), part_of(facts)
    outcome = sweep(
        tasks(shapes, options.weights or WEIGHTS, contexts, rows, model, part),
        earlier(options.report, facts, "steps") if options.resume else {},
        options.seconds, save, line,
    )  # fmt: skip
    if outcome.measured and can_plot():
        plot(outcome.measured, facts, options.report.with_suffix(".png"))
    print(outcome.said())
    return outcome.status


def held(longest: int, most_rows: int = MAX_ROWS) -> Holding:
    """Models one at a time, for contexts up to `longest` and passes of `most_rows`."""
    kept: dict[tuple[Shape, str], Any] = {}

    def holding(shape: Shape, weights: str) -> Any:
        if (shape, weights) not in kept:
            kept.clear()
            gc.collect()
            torch.cuda.empty_cache()
            kept[shape, weights] = random_model(
                shape, weights, longest + GROWTH, most_rows, Backing("cuda", torch.bfloat16)
            )
        return kept[shape, weights]

    return holding


def tasks(
    shapes: Sequence[Shape], kinds: Sequence[str], contexts: Sequence[int],
    row_counts: Sequence[int], holding: Holding, part: Part,
) -> Iterator[Task]:  # fmt: skip
    """Yield steps of every model, and growth of drafts, which all but the first are."""
    for shape, kind in itertools.product(shapes, kinds):
        for context in contexts:
            for rows in row_counts:
                name = f"{shape.name} {kind} step of {rows} at {context}"
                yield Task(
                    name, partial(measured, shape, kind, Passes(rows, context), holding, part)
                )
            for prefill in PrefillKind if shape == LLAMA_8B else ():
                name = f"{shape.name} {kind} prompt of {CHUNK} at {context}, {prefill.value}"
                passes = Passes(CHUNK, context, prefill=prefill)
                yield Task(name, partial(measured, shape, kind, passes, holding, part))
            for width, chained in itertools.product(WIDTHS, CHAINED) if shape != LLAMA_8B else ():
                name = f"{shape.name} {kind} growth by {width}, {chained} a launch, at {context}"
                passes = Passes(width, context, chained)
                yield Task(name, partial(measured, shape, kind, passes, holding, part))


class Passes(NamedTuple):
    """Passes of one measurement."""

    rows: int
    context: int
    chained: int = 0
    """Passes of a launch of a draft; 0: a target's step."""
    prefill: PrefillKind | None = None
    """What computes the rows of a prompt; None: they are no prompt's."""


def measured(shape: Shape, kind: str, passes: Passes, holding: Holding, part: Part) -> Entry:
    """Return microseconds of a target's step, or a chained draft's, beside its roofline."""
    model = holding(shape, kind)
    rows, context, chained, prefill = passes
    if prefill is not None:
        timed = prompt_chunk(model, context, prefill is PrefillKind.LIBRARY)
    elif chained:
        timed = growing(model, rows, context, chained)
    else:
        timed = one_step(model, rows, context)
    best = total(step(shape, 1, rows, context, kind), part) * 1e6
    of = {"model": shape.name, "weights": kind, "rows": rows, "context": context}
    of |= {"chained": chained, "prefill": prefill and prefill.value}
    return of | entry(timed, best)


def entry(timed: Timed, best: float) -> Entry:
    """Return figures of one measurement; `best` is the roofline, in microseconds."""
    return {
        "microseconds": round(timed.step.median, 1),
        "low": round(timed.step.low, 1),
        "high": round(timed.step.high, 1),
        "repeats": timed.step.n,
        "device_microseconds": round(timed.device.median, 1),
        "host_share": round(max(0.0, 1 - timed.device.median / timed.step.median), 3),
        "roofline_microseconds": round(best, 1),
        "share_of_roofline": round(best / timed.step.median, 3),
        "goal": "met" if timed.step.median <= GOAL * best else "missed",
    }


def part_of(facts: dict[str, Any]) -> Part:
    """The device by its data sheet; of an unknown one, memory as fast as a copy and nothing else
    that bounds."""
    known = next((part for part in PARTS if part.name in facts["name"]), None)
    endless = float("inf")
    return known or Part(facts["name"], facts["bandwidth"], endless, endless, "copy")


def line(one: Entry) -> str:
    """One measurement for people."""
    return (
        f"{one['case']:44} {one['microseconds']:9.1f} us, roofline"
        f" {one['roofline_microseconds']:9.1f} ({one['share_of_roofline']:.0%}),"
        f" host {one['host_share']:.0%}; within 15 %: {one['goal']}"
    )


def ratios(entries: Sequence[Entry]) -> dict[str, float]:
    """Each step over its roofline."""
    return {
        f"{one['case']}: step / roofline": one["microseconds"] / one["roofline_microseconds"]
        for one in entries
        if "failed" not in one
    }


def plot(entries: Sequence[Entry], facts: dict[str, Any], path: Path) -> None:
    """Share of the roofline over context, a panel for each model, a line for weights and rows."""
    pyplot = headless_pyplot()

    names = list(dict.fromkeys(one["model"] for one in entries))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.5 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        curves: dict[str, list[tuple[int, float]]] = {}
        for one in entries:
            if one["model"] == name:
                what = f"{one['rows']} rows"
                what += f", {one['chained']} a launch" if one["chained"] else ""
                what += f", {one['prefill']}" if one.get("prefill") else ""
                curve = curves.setdefault(f"{one['weights']}, {what}", [])
                curve.append((one["context"], one["share_of_roofline"]))
        for label, points in curves.items():
            axis.plot(*zip(*sorted(points), strict=True), marker=".", label=label)
        axis.axhline(1 / GOAL, color="grey", linestyle=":")
        axis.set(title=name, xlabel="context", xscale="log", ylim=(0, 1.05))
        axis.legend(fontsize=6)
    axes[0][0].set_ylabel(f"share of the roofline, {facts['name']}")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
