"""Planners beside each other under Nightjar's loads: `python -m bench.nightjar`.

Plain decoding, 1, 2, 3 and 5 draft tokens for all, Nightjar's bandit, the product's planner, and an
oracle that knows the best number for each number of requests, under Poisson arrivals and the three
stress traces of the paper (arXiv 2512.22420), simulated with its three pairs: the product's own
schedulers in virtual time. `--real` runs the demo's pair on this machine instead, with the
product's planner and without a draft, in turns.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from bench.nightjar import real
from bench.nightjar.figures import plot, ratios, table
from bench.nightjar.loads import (
    AT_ONCE,
    MOVED_KV_TOKENS,
    PAIRS,
    STATIC,
    Side,
    goodput,
    loads_of,
    sides,
    static,
)
from bench.nightjar.run import MOVING, Outcome, saturated, simulated, steady
from bench.record.pictures import put_title
from bench.record.report import RESULTS, write_run

Key = TypeVar("Key")
Found = TypeVar("Found")


def main() -> int:
    """Run, write JSON and plot, print a table."""
    options = parse()
    load_average = os.getloadavg()
    if options.real:
        return real.main(options, load_average)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        best = {pair: best_by_requests(pool, pair) for pair in options.pairs}
        jobs = {
            (pair, load.name, side.name): (pair, side, load)
            for pair in options.pairs
            for load in loads_of(pair)
            for side in sides(best[pair])
        }
        found = all_of(pool, simulated, jobs)
        moves = all_of(pool, saturated, moving()) if MOVING in options.pairs else {}
    outcomes: dict[str, dict[str, dict[str, Outcome]]] = {}
    for pair, load, side in jobs:
        by_side = outcomes.setdefault(pair, {}).setdefault(load, {})
        by_side[side] = found[pair, load, side]
    claimed = ratios(outcomes) | memory_ratios(moves)
    write_run(
        options.out,
        "nightjar",
        {
            "outcomes": {
                pair: {
                    load: {side: asdict(one) for side, one in by_side.items()}
                    for load, by_side in by_load.items()
                }
                for pair, by_load in outcomes.items()
            },
            "best_static_by_requests": best,
            "with_memory_of_the_draft": {" ".join(key): rate for key, rate in moves.items()},
        },
        claimed,
        load_average,
    )
    plot(outcomes, options.out.with_suffix(".png"))
    put_title(options.out)
    print(table(outcomes))
    for name, value in claimed.items():
        print(f"{name:44} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(prog="python -m bench.nightjar", description=__doc__)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--real", action="store_true", help="the demo's pair on this machine")
    real.add_options(parser)
    options = parser.parse_args()
    if options.out is None:
        options.out = RESULTS / ("nightjar_real.json" if options.real else "nightjar.json")
    return options


def best_by_requests(pool: ProcessPoolExecutor, pair: str) -> dict[int, int]:
    """Return the best number of draft tokens for each number of requests at once."""
    numbers = (0, *STATIC)
    jobs = {(at, tokens): (pair, tokens, at) for at in AT_ONCE for tokens in numbers}
    rates = all_of(pool, steady, jobs)
    return {at: max(numbers, key=lambda tokens: rates[at, tokens]) for at in AT_ONCE}


def moving() -> dict[tuple[str, str], tuple[Side, int | None]]:
    """Return runs with the KV beside a draft and with that of the whole card.

    The latter is the most that giving the draft's memory to KV can bring: it is there from the
    start, and moving takes no time.
    """
    return {
        (side.name, words): (side, tokens)
        for side in (static(0), goodput())
        for words, tokens in (("beside the draft", None), ("draft away", MOVED_KV_TOKENS))
    }


def memory_ratios(moves: dict[tuple[str, str], float]) -> dict[str, float]:
    """Return tokens a second with the draft's memory by those without."""
    return {
        f"{side}_draft_away_vs_beside": rate / moves[side, "beside the draft"]
        for (side, words), rate in moves.items()
        if words == "draft away"
    }


def all_of(
    pool: ProcessPoolExecutor, work: Callable[..., Found], jobs: dict[Key, Any]
) -> dict[Key, Found]:
    """Do all jobs, and say on stderr which are done; return what each found, in their order."""
    futures = {pool.submit(work, *arguments): key for key, arguments in jobs.items()}
    for done, future in enumerate(as_completed(futures), 1):
        future.result()
        print(f"{done} of {len(jobs)}: {_words(futures[future])}", file=sys.stderr)
    return {key: future.result() for future, key in futures.items()}


def _words(key: Any) -> str:
    parts: Iterable[Any] = key if isinstance(key, tuple) else (key,)
    return " ".join(str(part) for part in parts)


if __name__ == "__main__":
    sys.exit(main())
