"""Sampling and scoring timed on one thread: median and range of interleaved rounds, microseconds.

Logits are synthetic (normal, and a few likely tokens). Leaves the share of a step that this makes
up to `bench.speculation`.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.report import RESULTS, Spread, median_and_range, write_report
from outrider.kernels.sampling.draft_scores import DraftScorer
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.kernels.sampling.philox import gumbel_row, noise_run

VOCAB, COLUMNS, ROWS, CHILDREN = 49_152, 8_192, 8, 8


@dataclass(frozen=True)
class Chain:
    """Sampling settings of a case."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 7
    choice: int = 0


CHAINS = {
    "greedy": Chain(),
    "t0.8": Chain(0.8),
    "t0.8_top_p0.9": Chain(0.8, top_p=0.9),
    "t0.8_top_k50": Chain(0.8, top_k=50),
}


def logits(columns: int) -> np.ndarray:
    random = np.random.default_rng(0)
    values = random.standard_normal((ROWS, columns)) * 3
    for row in values:
        row[random.integers(0, columns, 5)] += 12
    return values.astype(np.float32)


def cases() -> dict[str, tuple[Callable[[], object], int]]:
    """Each case: what to call, and by how many rows to divide."""
    token_ids = np.sort(np.random.default_rng(1).choice(VOCAB, COLUMNS, False)).astype(np.int32)
    sampler, scorer = Sampler(VOCAB), DraftScorer(token_ids, VOCAB, -0.1)
    wide, narrow, positions = logits(VOCAB), logits(COLUMNS), np.arange(ROWS)
    row, bits = np.empty(COLUMNS, np.float32), np.empty(VOCAB, np.uint32)
    copied, counters = np.empty(VOCAB, np.uint32), np.empty((4, VOCAB // 4), np.uint32)
    seed = np.uint64(7)
    found: dict[str, tuple[Callable[[], object], int]] = {}
    for name, chain in CHAINS.items():
        found[f"draw_{name}_per_row"] = (partial(sampler.sample, wide, positions, chain), ROWS)
        rules = scorer.rules(chain, 1.0)
        score = partial(scorer.score, narrow, positions, rules, CHILDREN)
        found[f"draft_scores_{name}_per_{ROWS}_rows"] = (score, 1)
    found["draft_noise_row"] = (partial(gumbel_row, seed, 0, 5, token_ids, row), 1)
    found["target_noise_bits"] = (partial(noise_run, seed, 0, 5, 0, counters, bits), 1)
    found["target_noise_bits_copied"] = (partial(np.copyto, copied, bits), 1)
    return found


def measure(rounds: int) -> dict[str, Spread]:
    """Return microseconds of each case; the cases take turns."""
    timed = cases()
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for call, _ in timed.values():
        call()
    for _ in range(rounds):
        for name, (call, rows) in timed.items():
            start = time.perf_counter()
            call()
            samples[name].append((time.perf_counter() - start) / rows * 1e6)
    return {name: median_and_range(times) for name, times in samples.items()}


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULTS / "sampling.json", help="report file")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    load = os.getloadavg()
    results = measure(options.rounds)
    for name, times in results.items():
        print(f"{name:40s} {times.median:8.1f} us  ({times.low:.1f} to {times.high:.1f})")
    greedy = results["draw_greedy_per_row"].median
    write_report(
        options.json,
        command=f"python -m bench.sampling --rounds {options.rounds}",
        results={"unit": "microseconds", "vocabulary": VOCAB, "columns": COLUMNS, "cases": results},
        ratios={
            f"draw_{name}_vs_greedy": results[f"draw_{name}_per_row"].median / greedy
            for name in CHAINS
            if name != "greedy"
        },
        load_average=load,
    )


if __name__ == "__main__":
    main()
