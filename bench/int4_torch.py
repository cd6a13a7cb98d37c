"""Own int8 and int4 linear layers beside torch's packed int4: `python -m bench.int4_torch`.

On one thread, all 121 layers of SmolLM2-135M with made-up weights (the head's in four bits too), so
that they come from memory, the sides alternating. Then whether torch gives a row the same bits
alone and beside others, for 1 to 16 rows.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bench.report import RESULTS, median_and_range, write_report
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import BLOCK, Packed, pack

SHAPES = ((960, 576, 30), (576, 576, 30), (3072, 576, 30), (576, 1536, 30), (49152, 576, 1))
"""Outputs, inputs and how many: fused QKV, output, fused gates, down, head."""
ROWS = (1, 4, 8, 16)
GROUPS = (32, 64)
PASSES = 3
"""Of which each side's turn takes the median."""
Pass = Callable[[], None]


def main() -> int:
    """Measure, write JSON, print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.int4_torch", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS / "int4_torch.json")
    options = parser.parse_args()
    load = os.getloadavg()
    torch.set_num_threads(1)
    sides: dict[str, Callable[[int], Pass]] = {
        str(path): own(kind_of(path)) for path in (NumericPath.INT8, NumericPath.INT4)
    } | {f"torch int4, groups of {size}": theirs(size) for size in GROUPS}
    times: dict[str, dict[int, list[float]]] = {s: {n: [] for n in ROWS} for s in sides}
    for rows in ROWS:
        passes = {side: ready(rows) for side, ready in sides.items()}
        for _ in range(options.repetitions):
            for side, one in passes.items():
                times[side][rows].append(milliseconds(one))
    spreads = {s: {n: median_and_range(v) for n, v in by.items()} for s, by in times.items()}
    ratios = {
        f"{side} over int8, {n} rows": by[n].median / spreads["int8"][n].median
        for side, by in spreads.items()
        for n in ROWS
        if side != "int8"
    }
    write_report(
        options.out,
        command="python -m bench.int4_torch " + " ".join(sys.argv[1:]),
        results={"ms": spreads, "torch_rows_independent": {g: independent(g) for g in GROUPS}},
        ratios=ratios,
        load_average=load,
    )
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def milliseconds(one: Pass) -> float:
    """Median of a few passes."""
    times = []
    for _ in range(PASSES):
        start = time.perf_counter()
        one()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def own(kind: NumericKind) -> Callable[[int], Pass]:
    """Return layers of a kind; `ready(rows)` gives a pass through all of them."""
    layers = [[copied(outputs, inputs, kind, n) for n in range(many)]
              for outputs, inputs, many in SHAPES]  # fmt: skip

    def ready(rows: int) -> Pass:
        ones = np.ones(rows, np.float32)
        x = {i: np.full((rows, i), 129, kind.activation) for _, i, _ in SHAPES}
        out = {o: np.empty((rows, o), np.float32) for o, _, _ in SHAPES}

        def one() -> None:
            for (o, i, _), packed in zip(SHAPES, layers, strict=True):
                for p in packed:
                    linear(Activations(x[i], ones), rows, p, out[o], Span(0, o // BLOCK))

        return one

    return ready


def copied(outputs: int, inputs: int, kind: NumericKind, seed: int) -> Packed:
    """A layer of its own memory."""
    return pack(np.random.default_rng(seed).standard_normal((outputs, inputs), np.float32), kind)


def theirs(size: int) -> Callable[[int], Pass]:
    """The same of torch, in bfloat16."""
    layers = [[packed_by_torch(o, i, size) for _ in range(many)] for o, i, many in SHAPES]

    def ready(rows: int) -> Pass:
        x = {i: torch.ones(rows, i, dtype=torch.bfloat16) for _, i, _ in SHAPES}

        def one() -> None:
            for (_, i, _), packed in zip(SHAPES, layers, strict=True):
                for weights, scales in packed:
                    torch.ops.aten._weight_int4pack_mm_for_cpu(x[i], weights, size, scales)

        return one

    return ready


def packed_by_torch(outputs: int, inputs: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights, and a scale and zero for each group."""
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.int32)
    weights = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    return weights, torch.randn(inputs // size, outputs, 2).to(torch.bfloat16)


def independent(size: int) -> bool:
    """True if torch gives every row of 1 to 16 the bits that it has alone."""
    weights, scales = packed_by_torch(960, 576, size)
    x = torch.randn(16, 576).to(torch.bfloat16)

    def multiplied(part: torch.Tensor) -> NDArray[np.float32]:
        found = torch.ops.aten._weight_int4pack_mm_for_cpu(part.contiguous(), weights, size, scales)
        return np.asarray(found.float())

    alone = np.concatenate([multiplied(x[n : n + 1]) for n in range(16)])
    return all(np.array_equal(multiplied(x[:n]), alone[:n]) for n in range(1, 17))


if __name__ == "__main__":
    sys.exit(main())
