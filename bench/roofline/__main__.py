"""The time of a decode step if memory were the only limit: `python -m bench.roofline`.

Computes from the models' shapes and the parts' data sheets; nothing is measured. Writes
`bench/results/roofline.json`, a plot and `docs/reference/roofline.md`. What is measured is
`bench.kernels`'.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.tables import table

from bench.record.report import RESULTS, headless_pyplot
from bench.roofline.work import (
    LLAMA_8B,
    LLAMA_70B,
    MODELS,
    PARTS,
    WEIGHTS,
    Shape,
    Work,
    seconds,
    step,
    total,
)

REPORT = RESULTS / "roofline.json"
PLOT = RESULTS / "roofline.png"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "roofline.md"
RANKS = (1, 2, 4, 8)
ROWS = (1, 4, 8, 16)
CONTEXTS = (1024, 4096, 16384, 32768)
USUAL_ROWS, USUAL_CONTEXT = 8, 4096


def report() -> dict[str, Any]:
    """Every step, with bytes and flops of each kernel and microseconds on each part."""
    cases = itertools.product(MODELS, WEIGHTS, RANKS, ROWS, CONTEXTS)
    return {"steps": [_entry(*case) for case in cases]}


def _entry(model: Shape, weights: str, ranks: int, rows: int, context: int) -> dict[str, Any]:
    works = tuple(step(model, ranks, rows, context, weights))
    kernels = {
        work.kernel: [round(work.bytes), round(work.flops), round(work.sent)] for work in works
    }
    times = {part.name: round(total(works, part) * 1e6, 1) for part in PARTS}
    names = {"model": model.name, "weights": weights, "ranks": ranks}
    return {**names, "rows": rows, "context": context, "microseconds": times, "kernels": kernels}


def written(found: dict[str, Any]) -> str:
    """The report as JSON, a step a line."""
    steps = ",\n".join(json.dumps(one) for one in found["steps"])
    columns = '"columns of kernels": ["bytes", "flops", "bytes sent"]'
    return f'{{"command": "python -m bench.roofline", {columns}, "steps": [\n{steps}\n]}}\n'


HEAD = """\
<!-- Written by `python -m bench.roofline`; change the arithmetic instead. -->

# Roofline of a decode step

What one step of one sequence would take if each kernel ran at the full speed of its slowest
resource: memory, tensor cores or NVLink. Nothing here is measured. Launches, waits between kernels
and what a rank waits for another are not in it; they are what kernels have to fight for. Rows are
those of one sequence, which read its KV once; weights and KV count once a step. Whether a model
fits a part's memory is not asked."""
BOUND = """\
At 1 to 16 rows every kernel is bound by memory on both parts, but for the all-reduce: an H100 does
295 flops in the time of one byte, and a matrix in bfloat16 needs one for each row and byte."""


def page() -> str:
    """The reference page."""
    parts = [
        (part.name, f"{part.bandwidth / 1e12:g} TB/s", f"{part.flops / 1e12:g} Tflop/s",
         f"{part.link / 1e9:g} GB/s", part.source)
        for part in PARTS
    ]  # fmt: skip
    usual = f"{USUAL_ROWS} rows, {USUAL_CONTEXT} positions"
    sections = [
        HEAD,
        table(("part", "memory", "bfloat16, dense", "NVLink, one way", "source"), parts),
        BOUND,
        f"## Kernels\n\nMicroseconds of a step's launches, {LLAMA_8B.name}, bfloat16, {usual}, "
        "H100 / H200.",
        kernels(LLAMA_8B),
        f"## Rows\n\nMilliseconds of a step, bfloat16, {USUAL_CONTEXT} positions, H100 / H200.",
        by("rows", ROWS),
        f"## Weights\n\nMilliseconds of a step, {usual}, H100 / H200. The head stays bfloat16.",
        by("weights", WEIGHTS),
        "Every step with its bytes and flops, of other contexts too: "
        "`bench/results/roofline.json`; [plot](../../bench/results/roofline.png).",
    ]
    return "\n\n".join(sections) + "\n"


def kernels(model: Shape) -> str:
    """Return times of each kernel by tensor-parallel degree."""
    steps = [{w.kernel: w for w in usual(model, ranks)} for ranks in RANKS]
    names = list(steps[-1])
    head = ("kernel", "launches", "MB, flops per byte (TP 1)", *(f"TP {n}" for n in RANKS))
    return table(head, [_kernel_row(name, steps) for name in names])


def _kernel_row(name: str, steps: list[dict[str, Work]]) -> tuple[str, ...]:
    works = [one.get(name) for one in steps]
    first = works[0]
    size = f"{first.bytes / 1e6:.1f}, {first.flops / first.bytes:.1f}" if first else ""
    launches = next(str(work.launches) for work in works if work)
    times = (
        " / ".join(f"{seconds(work, part) * 1e6:.0f}" for part in PARTS) if work else ""
        for work in works
    )
    return (name, launches, size, *times)


def usual(
    model: Shape,
    ranks: int,
    rows: int = USUAL_ROWS,
    context: int = USUAL_CONTEXT,
    weights: str = "bf16",
) -> tuple[Work, ...]:
    """The step that tables show, but for what is given."""
    return tuple(step(model, ranks, rows, context, weights))


def by(name: str, values: Sequence[Any]) -> str:
    """Return times of a step by one of its settings."""
    head = ("model", "TP", *(f"{name} {value}".removeprefix("weights ") for value in values))
    rows = [
        (model.name, str(ranks), *(_times(usual(model, ranks, **{name: one})) for one in values))
        for model in MODELS
        for ranks in RANKS
    ]
    return table(head, rows)


def _times(works: tuple[Work, ...]) -> str:
    return " / ".join(f"{total(works, part) * 1e3:.2f}" for part in PARTS)


def plot(path: Path = PLOT) -> None:
    """Milliseconds of a step over context, by model and tensor-parallel degree."""
    pyplot = headless_pyplot()

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, model in zip(axes, (LLAMA_8B, LLAMA_70B), strict=True):
        for ranks in RANKS:
            for part, style in zip(PARTS, ("-", "--"), strict=True):
                times = [total(usual(model, ranks, context=c), part) * 1e3 for c in CONTEXTS]
                axis.plot(CONTEXTS, times, style, color=f"C{RANKS.index(ranks)}",
                          label=f"TP {ranks}, {part.name}")  # fmt: skip
        axis.set(title=f"{model.name}, bfloat16, {USUAL_ROWS} rows", xlabel="context",
                 ylabel="milliseconds of a step", xscale="log", yscale="log")  # fmt: skip
        axis.set_xticks(CONTEXTS, [str(c) for c in CONTEXTS])
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    figure.suptitle("Roofline of a decode step on H100 or H200: arithmetic, nothing is measured")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=8)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def main() -> int:
    """Write JSON, plot and page."""
    argparse.ArgumentParser(prog="python -m bench.roofline", description=__doc__).parse_args()
    REPORT.write_text(written(report()), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    plot()
    return 0


if __name__ == "__main__":
    sys.exit(main())
