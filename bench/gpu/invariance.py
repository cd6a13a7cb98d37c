"""The cost of batch invariance: `python -m bench.gpu.invariance`.

A kernel whose rows must not depend on each other keeps one cut for any number of rows, and one
size of splits for a context's length. This times Llama-3-8B's kernels cut that way, cut as is best
for the rows at hand, and by whatever else does the same (cuBLAS, SDPA; with --peers flex attention
and others too), and adds up a step. Needs a CUDA device; writes `bench/results/invariance.json`.

examples:
  python -m bench.gpu.invariance
  python -m bench.gpu.invariance --weights fp8 --seconds 120
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from bench.gpu.cases import attention_cases, linear_cases
from bench.gpu.cases.graph_timing import timed
from bench.gpu.cases.kernel_case import CONTEXTS, OURS, ROWS, Case, Timer
from bench.gpu.device_run import Entry, Task, device, earlier, parser, reason, says_missing, sweep
from bench.kernels import PEERS_HELP, without_peers
from bench.record.report import RESULTS, write_report
from bench.roofline.work import LLAMA_8B, WEIGHTS, Shape, step

REPORT = RESULTS / "invariance.json"
COMMAND = "python -m bench.gpu.invariance"
WAYS = ("fixed", "best cut", "any")
"""As it is; the best of our own cuts; the best of all, other packages among them."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the report."""
    wanted = parser(__doc__, COMMAND, REPORT)
    wanted.add_argument("--weights", choices=WEIGHTS, action="append", help="default: bf16, fp8")
    wanted.add_argument("--peers", action="store_true", help=PEERS_HELP)
    options = wanted.parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    load = os.getloadavg()
    facts = device()
    kinds = options.weights or ["bf16", "fp8"]

    def save(entries: Sequence[Entry]) -> None:
        sums = steps(entries, LLAMA_8B, kinds)
        results = {"device": facts, "kernels": entries, "steps": sums}
        write_report(options.report, COMMAND, results, ratios(sums), load)

    kept = earlier(options.report, facts, "kernels") if options.resume else {}
    compared = cases() if options.peers else map(without_peers, cases())
    outcome = sweep(tasks(compared, kinds), kept, options.seconds, save, line)
    for one in steps(outcome.entries, LLAMA_8B, kinds):
        print(step_line(one))
    print(outcome.said())
    return outcome.status


def cases() -> Iterator[Case]:
    """Of Llama-3-8B on one device."""
    yield from linear_cases.cases(LLAMA_8B, 1)
    yield from attention_cases.cases(LLAMA_8B, 1)


def tasks(cases: Iterable[Case], kinds: Sequence[str]) -> Iterator[Task]:
    """Of the cases that leave a choice; attention and the head are bfloat16 with any weights."""
    for case in cases:
        always = case.kernel in ("attention", "linear head")
        if case.choices and (always or case.weights in kinds):
            yield Task(case.name, partial(measure, case))


def measure(case: Case, time: Timer = timed) -> Entry:
    """Return microseconds as it is, of every choice and of every other side, by name."""
    fixed = time(case.sides[OURS], case.bytes).median
    cuts: dict[str, float] = {}
    others: dict[str, float] = {}
    for found, sides in ((cuts, case.choices), (others, case.sides)):
        for name, make in sides.items():
            if name != OURS:
                try:
                    found[name] = round(time(make, case.bytes).median, 2)
                except Exception as error:  # more than the device holds, or a package's own
                    print(f"{case.name}, {name}: {reason(error)}", file=sys.stderr)
    best = min([fixed, *cuts.values()])
    microseconds = {"fixed": fixed, "best cut": best, "any": min([best, *others.values()])}
    return {
        "kernel": case.kernel, "shape": case.shape, "weights": case.weights, "rows": case.rows,
        "microseconds": {way: round(time, 2) for way, time in microseconds.items()},
        "cuts": cuts, "others": others,
    }  # fmt: skip


def steps(entries: Sequence[Entry], model: Shape, kinds: Sequence[str]) -> list[Entry]:
    """A step's sums by weights, rows and context, of those whose kernels have all been measured."""
    times = {one["case"]: one["microseconds"] for one in entries if "failed" not in one}
    found = []
    for kind in kinds:
        for rows in ROWS:
            for context in CONTEXTS:
                launches = launches_of(model, kind, rows, context)
                if launches.keys() <= times.keys():
                    sums = {w: sum(times[c][w] * n for c, n in launches.items()) for w in WAYS}
                    of = {"weights": kind, "rows": rows, "context": context}
                    found.append(of | {"microseconds": {w: round(t, 1) for w, t in sums.items()}})
    return found


def launches_of(model: Shape, weights: str, rows: int, context: int) -> dict[str, int]:
    """Launches in a step by case, of the kernels that leave a choice."""
    found = {}
    for work in step(model, 1, rows, context, weights):
        at = f" at {context}" if work.kernel == "attention" else ""
        kind = "bf16" if work.kernel in ("attention", "linear head") else weights
        if work.kernel not in ("norm", "sampling"):
            found[f"{work.kernel} {model.name} TP 1{at} {kind} m={rows}"] = work.launches
    return found


def cost(microseconds: Mapping[str, float], way: str) -> float:
    """Return what the fixed cuts take more than another way, in percent."""
    return 100 * (microseconds["fixed"] / microseconds[way] - 1)


def line(one: Entry) -> str:
    """One kernel for people."""
    times = one["microseconds"]
    costs = " ".join(f"{cost(times, way):+6.1f} % over {way}" for way in WAYS[1:])
    return f"{one['case']:44} {times['fixed']:8.1f} us {costs}"


def step_line(one: Entry) -> str:
    """One step for people."""
    name = f"step {one['weights']} m={one['rows']} at {one['context']}"
    return line({"case": name, "microseconds": one["microseconds"]})


def ratios(sums: Sequence[Entry]) -> dict[str, float]:
    """Return what a step takes with fixed cuts over another way."""
    return {
        f"step {one['weights']} m={one['rows']} at {one['context']}: fixed / {way}":
            one["microseconds"]["fixed"] / one["microseconds"][way]
        for one in sums
        for way in WAYS[1:]
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
