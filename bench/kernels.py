"""Every GPU kernel timed beside other implementations: `python -m bench.kernels`.

Needs a CUDA device; on a machine without one it says so and ends with status 2. Writes
`bench/results/kernels.json` and a plot: microseconds of a launch, and the share of the device's
memory bandwidth that its least traffic makes. Correctness is for `tests/unit/kernels/gpu`.

examples:
  python -m bench.kernels
  python -m bench.kernels --model Llama-3-8B --rows 1 --rows 8 --context 4096
  python -m bench.kernels --kernel attention --peers     # beside flex attention and others
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.gpu.cases import attention_cases, linear_cases
from bench.gpu.cases.attention_peers import PACKAGES
from bench.gpu.cases.graph_timing import timed
from bench.gpu.cases.kernel_case import CONTEXTS, OURS, ROWS, SHAPES, Case, Timer
from bench.gpu.device_run import (
    Entry,
    Task,
    can_plot,
    device,
    earlier,
    parser,
    reason,
    saver,
    says_missing,
    sweep,
)
from bench.record.report import RESULTS, headless_pyplot

REPORT = RESULTS / "kernels.json"
COMMAND = "python -m bench.kernels"
PEERS_HELP = "beside flex attention, FlashInfer and FlashAttention too, which compile for minutes"


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the report and the plot."""
    wanted = parser(__doc__, COMMAND, REPORT)
    wanted.add_argument("--kernel", action="append", help="only these, by name; can be repeated")
    names = list(dict.fromkeys(shape.name for shape, _ in SHAPES))
    wanted.add_argument("--model", choices=names, action="append", help="only these")
    wanted.add_argument("--rows", choices=ROWS, type=int, action="append", help="only these")
    wanted.add_argument("--context", choices=CONTEXTS, type=int, action="append", help="only these")
    wanted.add_argument("--peers", action="store_true", help=PEERS_HELP)
    options = wanted.parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    facts = device() | {"absent": absent() if options.peers else []}
    if facts["absent"]:
        print(f"not installed, so not compared with: {', '.join(facts['absent'])}")
    save = saver(options, COMMAND, facts, "kernels", ratios=ratios)
    outcome = sweep(
        tasks(
            chosen(cases(options.model or names), options.rows, options.context, options.peers),
            options.kernel, facts["bandwidth"],
        ),
        earlier(options.report, facts, "kernels") if options.resume else {},
        options.seconds, save, line,
    )  # fmt: skip
    if outcome.measured and can_plot():
        plot(outcome.measured, facts, options.report.with_suffix(".png"))
    print(outcome.said())
    return outcome.status


def cases(models: Sequence[str]) -> Iterator[Case]:
    """Linear layers of every shape, which are most of a step; then what is around attention."""
    shapes = [shape for shape in SHAPES if shape[0].name in models]
    for module in (linear_cases, attention_cases):
        for shape in shapes:
            yield from module.cases(*shape)


def chosen(
    cases: Iterable[Case], rows: Sequence[int] | None, contexts: Sequence[int] | None, peers: bool
) -> Iterator[Case]:
    """Cases of some rows and contexts, or of all; with peers or only with sides of torch's own."""
    for case in cases:
        at = context(case)
        if case.rows in (rows or ROWS) and (at is None or at in (contexts or CONTEXTS)):
            yield case if peers else without_peers(case)


def context(case: Case) -> int | None:
    """Return the context of a case whose kernel sees one."""
    _, _, at = case.shape.partition(" at ")
    return int(at) if at else None


def without_peers(case: Case) -> Case:
    """A case with our side and torch's own, which need no package and no compiler."""
    sides = {name: s for name, s in case.sides.items() if name.startswith((OURS, "torch"))}
    return replace(case, sides=sides)


def absent() -> list[str]:
    """Return packages that some case could be compared with, if they were installed."""
    return [package for package in PACKAGES if find_spec(package) is None]


def tasks(cases: Iterable[Case], kernels: list[str] | None, bandwidth: float) -> Iterator[Task]:
    """Of the cases of `kernels`, or of all."""
    for case in cases:
        if kernels is None or case.kernel in kernels:
            yield Task(case.name, partial(measure, case, bandwidth))


def measure(case: Case, bandwidth: float, time: Timer = timed) -> Entry:
    """Return microseconds of each side, and shares of `bandwidth`; a peer that fails says why."""
    sides: dict[str, Any] = {OURS: asdict(time(case.sides[OURS], case.bytes))}
    for name, make in case.sides.items():
        try:
            if name != OURS:
                sides[name] = asdict(time(make, case.bytes))
        except Exception as error:  # peers are foreign packages, and raise what they like
            sides[name] = f"failed: {reason(error)}"
    least = case.bytes / bandwidth * 1e6
    figures = {name: time for name, time in sides.items() if not isinstance(time, str)}
    return {
        "kernel": case.kernel,
        "shape": case.shape,
        "weights": case.weights,
        "rows": case.rows,
        "bytes": case.bytes,
        "microseconds": sides,
        "share": {name: round(least / time["median"], 3) for name, time in figures.items()},
    }


def line(one: Entry) -> str:
    """One measurement for people."""
    share = one["share"]
    times = ", ".join(
        f"{name} {time}" if isinstance(time, str)
        else f"{name} {time['median']:.1f} us ({share[name]:.0%})"
        for name, time in one["microseconds"].items()
    )  # fmt: skip
    return f"{one['kernel']:12} {one['shape']:18} {one['weights']:5} m={one['rows']:<3} {times}"


def ratios(entries: Sequence[Entry]) -> dict[str, float]:
    """Return what each other side takes over ours, by case."""
    return {
        f"{one['case']}: {side} / {OURS}": time["median"] / one["microseconds"][OURS]["median"]
        for one in entries
        if "failed" not in one
        for side, time in one["microseconds"].items()
        if side != OURS and not isinstance(time, str)
    }


def plot(measured: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """Share of bandwidth over rows, a panel for each kernel."""
    pyplot = headless_pyplot()

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
