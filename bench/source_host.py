"""What the text as a source adds to the host time of a step: `python -m bench.source_host`.

One sequence, its answer committed token by token. Timed at each root: the search of the text with
its nodes, and the plan of the step, which ranks them; the same without the source beside it, in
turns. In one text no token comes twice, so nothing is found; the answer of the other copies its
prompt. Warm: roots one after the other. Cold: as much memory as a pass reads is read before each,
so that caches hold none of it. `bench.host_tree` times whole steps, which vary by more than this.
"""

import argparse
import itertools
import os
import statistics
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.host_tree_loops import costs
from bench.host_tree_peer import TARGET_SECONDS
from bench.report import RESULTS, write_report
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.messages import Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.mirror import Mirror

LIMIT_US = 10.0
"""Microseconds that the source may add to a step of a sequence."""
PROMPT, ANSWER, WARM_UP = 1500, 400, 50
"""Tokens; roots before those that count."""
PASS_BYTES = 110_000_000
"""That a pass of the demo's target reads."""
SIDES = {"without": (SourceKind.DRAFT,), "text": (SourceKind.DRAFT, SourceKind.SUFFIX)}
PARTS = ("search", "plan")


def texts() -> dict[str, Ints]:
    """Return prompt and answer: one in which nothing repeats, one whose answer copies its prompt
    from its middle on."""
    fresh = np.random.default_rng(0).permutation(40_000)[: PROMPT + ANSWER].astype(np.int32)
    copied = fresh.copy()
    copied[PROMPT:] = fresh[PROMPT // 2 : PROMPT // 2 + ANSWER]
    return {"nothing repeats": fresh, "copies its prompt": copied}


class Answering:
    """A sequence of one text, with or without the text as a source."""

    def __init__(self, text: Ints, sources: tuple[SourceKind, ...]) -> None:
        self._text = text
        policy = PolicySettings(off_below_percent=0, sources=sources)
        self.selector = RowSelector.start(costs(TARGET_SECONDS), policy, 64, 0.0)
        submit = Submit(1, text[:PROMPT], SamplingParams(), ANSWER + 100, (), True, 0.0)
        tokens = np.zeros(len(text) + 200, np.int32)
        tokens[:PROMPT] = text[:PROMPT]
        self.sequence = Sequence(
            submit=submit,
            tokens=tokens,
            length=PROMPT,
            mirror=Mirror(PROMPT - 1, tokens=tokens),
            calibration=self.selector.new_calibration(),
            ends=np.zeros(0, np.int32),
            sources=self.selector.local.wanted,
        )

    def next_root(self) -> tuple[int, int]:
        """Commit the next token; return the nanoseconds of search and plan."""
        sequence, selector = self.sequence, self.selector
        token = self._text[sequence.length : sequence.length + 1]
        sequence.append(token, sequence.mirror.commit(token), 0.0)
        began = time.perf_counter_ns()
        if sequence.needs_search:
            selector.search(sequence)
        searched = time.perf_counter_ns()
        selector.select([sequence], 0, 0.0, may_wait=False)
        return searched - began, time.perf_counter_ns() - searched


def measure(text: Ints, cold: bool) -> dict[str, list[tuple[int, int]]]:
    """Return the nanoseconds of each part at each root, by side; sides take turns."""
    sides = {name: Answering(text, sources) for name, sources in SIDES.items()}
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in SIDES}
    weights = np.ones(PASS_BYTES // 8 if cold else 1)
    for _, (name, side) in itertools.product(range(ANSWER), sides.items()):
        weights.sum()
        found[name].append(side.next_root())
    return {name: times[WARM_UP:] for name, times in found.items()}


def figures(runs: list[dict[str, list[tuple[int, int]]]]) -> dict[str, float]:
    """Return microseconds: medians over roots of all repetitions, and what the source adds."""
    found = {}
    for name in SIDES:
        times = np.array([root for run in runs for root in run[name]]) / 1e3  # [roots, parts]
        for at, part in enumerate(PARTS):
            found[f"{name}, {part}"] = float(np.median(times[:, at]))
    added = [
        float(np.median(np.sum(run["text"], axis=1)) - np.median(np.sum(run["without"], axis=1)))
        for run in runs
    ]
    return found | {"added": statistics.median(added) / 1e3}


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "source_host.json")
    options = parser.parse_args()
    load = os.getloadavg()
    results = {
        f"{name}, {'cold' if cold else 'warm'}": figures(
            [measure(text, cold) for _ in range(options.repetitions)]
        )
        for name, text in texts().items()
        for cold in (False, True)
    }
    table = Table("µs a step", *next(iter(results.values())))
    for name, values in results.items():
        table.add_row(name, *(f"{value:.1f}" for value in values.values()))
    Console().print(table)
    write_report(
        options.out,
        command=f"python -m bench.source_host --repetitions {options.repetitions}",
        results={"unit": "microseconds of a step, medians over roots", "cases": results},
        ratios={
            f"{name.replace(', ', '_').replace(' ', '_')}_vs_limit": values["added"] / LIMIT_US
            for name, values in results.items()
        },
        load_average=load,
    )


if __name__ == "__main__":
    main()
