"""Other cuts of linear layers timed on a GPU: `python -m bench.gpu.tuning`.

What `outrider.kernels.gpu.tiling` chooses is arithmetic; this shows what it leaves out. Needs a
CUDA device, takes about four minutes, and writes `bench/results/kernels_tuning.json`. Changes no
plan.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from bench.gpu.cases.graph_timing import copies, microseconds
from bench.gpu.cases.kernel_case import SHAPES, Launch
from bench.gpu.cases.linear_cases import random_weights
from bench.gpu.device_run import Entry, Task, device, earlier, parser, saver, says_missing, sweep
from bench.record.report import RESULTS
from bench.roofline.work import WEIGHTS, Shape, matrix_bytes
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.tiles import make_scratch
from outrider.kernels.gpu.tiling import Tiling, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights

REPORT = RESULTS / "kernels_tuning.json"
COMMAND = "python -m bench.gpu.tuning"
ROWS = 8
SPLITS = (1, 2, 3, 4, 6, 8)
COLUMNS = (32, 64)
BLOCKS = (128, 256)
STAGES = (3, 4, 6)
WARPS = (4, 8)
SHOWN = 3
CHOSEN = ("columns", "block", "splits", "stages", "warps")
Timer = Callable[[Tiling], float]
"""Microseconds of a launch; raises `OutOfResources` where the device cannot hold it."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, show and write the fastest cuts."""
    wanted = parser(__doc__, COMMAND, REPORT)
    wanted.add_argument("--weights", choices=WEIGHTS, action="append", help="only these")
    names = list(dict.fromkeys(shape.name for shape, _ in SHAPES))
    wanted.add_argument("--model", choices=names, action="append", help="only these")
    options = wanted.parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    facts = device()

    save = saver(options, COMMAND, facts, "layers", {"rows": ROWS})
    kept = earlier(options.report, facts, "layers") if options.resume else {}
    outcome = sweep(
        tasks(options.model or names, options.weights or WEIGHTS), kept, options.seconds, save, line
    )
    print(outcome.said())
    return outcome.status


def tasks(models: Sequence[str], kinds: Sequence[str]) -> Iterator[Task]:
    """Every layer of some models with every kind of weights."""
    for name, outputs, inputs in layers(models):
        for kind in kinds:
            yield Task(f"{name} {kind}", partial(measure, name, kind, outputs, inputs))


def measure(name: str, kind: str, outputs: int, inputs: int) -> Entry:
    """Return what a layer's own plan takes, and the fastest cuts."""
    ours, best = tuned(kind, outputs, inputs)
    one = {"layer": name, "outputs": outputs, "inputs": inputs, "weights": kind}
    return one | {"planned": ours, "fastest": best}


def layers(models: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Name, outputs and inputs of the layers of the shapes that `bench.kernels` times."""
    for model, ranks in SHAPES:
        if model.name not in models:
            continue
        for name, outputs, inputs in _of(model, ranks):
            yield f"{model.name} TP {ranks} {name}", outputs, inputs


def _of(model: Shape, ranks: int) -> Iterator[tuple[str, int, int]]:
    heads, kv_heads = model.heads // ranks, max(1, model.kv_heads // ranks)
    yield "projection", (heads + 2 * kv_heads) * model.head_dim, model.hidden
    yield "out", model.hidden, heads * model.head_dim
    yield "gated", 2 * model.ffn // ranks, model.hidden
    yield "down", model.hidden, model.ffn // ranks


def candidates(weights: Weights) -> Iterator[Tiling]:
    """Cuts worth a try; all give every input to one split."""
    for columns in COLUMNS:
        for splits in SPLITS:
            base = plan(weights, columns, splits)
            for block in BLOCKS if weights.format is not WeightFormat.INT4 else (base.block,):
                share = -(-weights.inputs // (base.splits * block)) * block
                cut = replace(base, block=block, share=share, splits=-(-weights.inputs // share))
                for stages in STAGES:
                    for warps in WARPS:
                        yield replace(cut, stages=stages, warps=warps)


def tuned(kind: str, outputs: int, inputs: int) -> tuple[Any, Any]:
    """Planned cut and the fastest of the candidates, with their times."""
    count = copies(matrix_bytes(outputs, inputs, kind))
    dtype = torch.bfloat16
    held = [random_weights(kind, outputs, inputs, "cuda", dtype) for _ in range(count)]
    x = torch.randn(ROWS, inputs, device="cuda", dtype=dtype)
    out = torch.empty(ROWS, outputs, device="cuda", dtype=dtype)

    def time(cut: Tiling) -> float:
        ahead = iter(held)
        return microseconds(lambda: launched(x, next(ahead), out, cut), count).median

    planned = plan(held[0])
    return shown(planned, time(planned)), fastest(list(dict.fromkeys(candidates(held[0]))), time)


def launched(x: Tensor, weights: Weights, out: Tensor, cut: Tiling) -> Launch:
    """A launch with a scratch of its own."""
    scratch = make_scratch(ROWS, [cut], str(x.device))

    def launch() -> Tensor:
        linear(x, weights, out, scratch, cut)
        return out

    return launch


def fastest(cuts: Sequence[Tiling], time: Timer) -> list[dict[str, Any]]:
    """The SHOWN fastest; those that the device cannot hold are left out."""
    times: list[tuple[float, Tiling]] = []
    for cut in cuts:
        try:
            times.append((time(cut), cut))
        except OutOfResources:
            continue
    return [shown(cut, taken) for taken, cut in sorted(times, key=lambda one: one[0])[:SHOWN]]


def shown(cut: Tiling, taken: float) -> dict[str, Any]:
    """A cut and its microseconds."""
    return asdict(cut) | {"microseconds": round(taken, 2)}


def line(one: Entry) -> str:
    """One layer for people, with gigabytes a second."""
    size = matrix_bytes(one["outputs"], one["inputs"], one["weights"])
    ours, best = one["planned"], one["fastest"][0]
    rates = [(cut, size / cut["microseconds"] / 1e3) for cut in (ours, best)]
    cut = ", ".join(f"{name} {best[name]}" for name in CHOSEN)
    times = (f"{cut['microseconds']} us ({rate:.0f} GB/s)" for cut, rate in rates)
    return f"{one['layer']} {one['weights']}: planned {next(times)}, fastest {next(times)}: {cut}"


if __name__ == "__main__":
    sys.exit(main())
