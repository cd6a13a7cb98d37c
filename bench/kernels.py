"""Times every GPU kernel against what else does the same: `python -m bench.kernels`.

Needs a CUDA device; on a machine without one it says so and ends with status 2. Writes
`bench/results/kernels.json` and a plot: microseconds of a launch, and the share of the device's
memory bandwidth that its least traffic makes. Correctness is `tests/gpu`'s.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton

from bench.graph_timing import copies, copy_bandwidth, microseconds
from bench.kernel_case import OURS, Case
from bench.report import RESULTS, write_report
from bench.roofline import PARTS

REPORT = RESULTS / "kernels.json"
PLOT = RESULTS / "kernels.png"
COMMAND = "python -m bench.kernels"


def main(arguments: list[str] | None = None) -> int:
    """Measures, and writes the report and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", help="only these, by name; can be repeated")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    lacking = missing()
    if lacking:
        print(f"{lacking}: nothing was measured. Where there is one: {COMMAND}", file=sys.stderr)
        return 2
    load = os.getloadavg()
    facts = device()
    measured = []
    for case in cases():
        if options.kernel is None or case.kernel in options.kernel:
            measured.append(measure(case, facts["bandwidth"]))
            print(line(measured[-1]), flush=True)
    write_report(
        options.report,
        command=COMMAND,
        results={"device": facts, "kernels": measured},
        ratios=ratios(measured),
        load_average=load,
    )
    plot(measured, facts, options.report.with_suffix(".png"))
    return 0


def missing() -> str:
    """What this machine lacks; empty if nothing."""
    if not torch.cuda.is_available():
        return "there is no CUDA device here"
    return "TRITON_INTERPRET is set" if triton.knobs.runtime.interpret else ""


def cases() -> Iterator[Case]:
    """Of all modules `*_cases.py` beside this one."""
    for file in sorted(Path(__file__).parent.glob("*_cases.py")):
        yield from importlib.import_module(f"bench.{file.stem}").cases()


def device() -> dict[str, Any]:
    """Facts of the device; bandwidth is the data sheet's, or else that of a copy."""
    name = torch.cuda.get_device_name()
    copied = copy_bandwidth()
    sheet = next((part.bandwidth for part in PARTS if part.name in name), None)
    return {
        "name": name,
        "capability": list(torch.cuda.get_device_capability()),
        "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size,
        "bandwidth": sheet or copied,
        "bandwidth_from": "data sheet" if sheet else "copy",
        "copy_bandwidth": copied,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def measure(case: Case, bandwidth: float) -> dict[str, Any]:
    """Microseconds of each side, and shares of `bandwidth`; a side that fails says why."""
    sides: dict[str, Any] = {}
    for name, make in case.sides.items():
        try:
            sides[name] = microseconds(make, copies(case.bytes))
        except RuntimeError as error:
            if name == OURS:
                raise
            sides[name] = f"failed: {str(error).splitlines()[0]}"
    least = case.bytes / bandwidth * 1e6
    timed = {name: time for name, time in sides.items() if not isinstance(time, str)}
    return {
        "kernel": case.kernel,
        "shape": case.shape,
        "weights": case.weights,
        "rows": case.rows,
        "bytes": case.bytes,
        "microseconds": sides,
        "share": {name: round(least / time.median, 3) for name, time in timed.items()},
    }


def line(one: dict[str, Any]) -> str:
    """One measurement for people."""
    times = ", ".join(
        f"{name} {time if isinstance(time, str) else f'{time.median:.1f} us'}"
        + (f" ({one['share'][name]:.0%})" if name in one["share"] else "")
        for name, time in one["microseconds"].items()
    )
    return f"{one['kernel']:12} {one['shape']:18} {one['weights']:5} m={one['rows']:<3} {times}"


def ratios(measured: list[dict[str, Any]]) -> dict[str, float]:
    """Our time below each other side's, by kernel, shape, weights and rows."""
    found = {}
    for one in measured:
        name = f"{one['kernel']} {one['shape']} {one['weights']} m={one['rows']}"
        ours = one["microseconds"][OURS]
        for side, time in one["microseconds"].items():
            if side != OURS and not isinstance(time, str):
                found[f"{name}: {side} / {OURS}"] = time.median / ours.median
    return found


def plot(measured: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """Share of bandwidth over rows, a panel for each kernel."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(one["kernel"] for one in measured))
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        curves: dict[str, list[tuple[int, float]]] = {}
        for one in measured:
            if one["kernel"] == name:
                label = f"{one['shape']} {one['weights']}"
                curves.setdefault(label, []).append((one["rows"], one["share"][OURS]))
        for label, points in curves.items():
            axis.plot(*zip(*points, strict=True), marker=".", label=label)
        axis.set(title=name, xlabel="rows", ylim=(0, 1.05))
        axis.legend(fontsize=5)
    axes[0][0].set_ylabel(f"share of {facts['bandwidth'] / 1e12:.2f} TB/s, {facts['name']}")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
