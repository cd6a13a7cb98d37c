"""Fair prefill against first come, first served: `python -m bench.prefill`.

A prompt of 1,500 tokens, then short ones, on an idle engine and beside running streams. Reports the
first token of the short prompts over the long one's, the gaps of the streams in steps without
prefill, and the time of all requests together. Plain decoding, so that only prefill differs; every
text is checked to be the same on both sides.
"""

import argparse
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.batching import SERVICE
from bench.report import RESULTS, median_and_range, prompts, write_report
from bench.serial import InTurn
from outrider.cli import processors
from outrider.cli.service_file import read_service
from outrider.worker.api.text import Message
from outrider.worker.messages import Finished
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.prefill import FairPrefill, PrefillPlanner, Prompt, Streams

SIDES = ("fair", "first come")
CHUNK = 64
"""Prefill rows of a pass of the side "first come"."""
LONG, SHORT = 1500, 32
"""Tokens of the prompts."""
ANSWER = 16
"""Tokens of their answers."""
STREAM_TOKENS = 320
"""Tokens of a running stream, enough to last beyond the prefill."""
BETWEEN = 0.1
"""Seconds between two prompts."""


class FirstCome:
    """Prompts in the order of their arrival, `CHUNK` rows of a pass."""

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        """As `PrefillPlanner.plan`."""
        left, counts = min(CHUNK, most), []
        for prompt in prompts:
            counts.append(min(left, prompt.rest))
            left -= counts[-1]
        return counts


class Arrival(NamedTuple):
    """A request, and when it comes."""

    after: float
    """Seconds after the streams have begun."""
    prompt: NDArray[np.int32]
    tokens: int


@dataclass(slots=True)
class Played:
    """What came of some arrivals."""

    seconds: float = 0.0
    """Until all had ended."""
    ends: dict[int, Finished] = field(default_factory=dict)
    """By place among the arrivals."""
    texts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)
    """Seconds of steps that decoded and held no prefill."""
    gaps: list[float] = field(default_factory=list)
    """Seconds of steps that decoded beside prefill."""

    def first_token(self, place: int) -> float:
        """Return the seconds to the first token of one of the arrivals."""
        return self.ends[place].timing.first_token_seconds


def main() -> int:
    """Measure, write JSON, print the ratios."""
    options = parse()
    load = os.getloadavg()
    results, ratios = run(options)
    write_report(
        options.out,
        command="python -m bench.prefill " + " ".join(sys.argv[1:]),
        results=results,
        ratios=ratios,
        load_average=load,
    )
    for name, value in ratios.items():
        print(f"{name:60} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--shorts", type=int, default=4)
    parser.add_argument("--streams", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--threads", type=int, default=processors.count())
    parser.add_argument("--out", type=Path, default=RESULTS / "prefill.json")
    return parser.parse_args()


def run(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, float]]:
    """Return results and ratios; the sides take turns."""
    engine = InTurn.start(read_service(options.file), options.threads, prefix_cache=False)
    costs = engine.turns.target.row_selector.costs
    planners: dict[str, PrefillPlanner] = {"fair": FairPrefill(costs), "first come": FirstCome()}
    results: dict[str, Any] = {"step_seconds": costs.to_json()}
    ratios: dict[str, float] = {}
    for streams in options.streams:
        played: dict[str, list[Played]] = {side: [] for side in SIDES}
        for repetition in range(options.repetitions):
            print(f"{streams} streams, repetition {repetition + 1}", file=sys.stderr)
            for side in SIDES[:: 1 if repetition % 2 else -1]:
                engine.turns.target.prefill_planner = planners[side]
                played[side].append(play(engine, arrivals(engine, streams, options.shorts)))
        step = statistics.median(s for side in SIDES for one in played[side] for s in one.steps)
        summary = {side: summarised(all_of, streams, step) for side, all_of in played.items()}
        results[f"{streams} streams"] = summary
        ratios |= ratios_of(summary, streams)
        ratios[f"same_text_{streams}_streams"] = same_text(played)
    return results, ratios


def arrivals(engine: InTurn, streams: int, shorts: int) -> list[Arrival]:
    """Return the streams, then the long prompt, then the short ones."""
    text = "\n".join(prompt.text for prompt in prompts())
    tokens = engine.prompt(Message("user", f"{text}\n{text}"))
    begun = [Arrival(0.0, tokens[at * 7 :][:SHORT], STREAM_TOKENS) for at in range(streams)]
    long = Arrival(0.0, tokens[:LONG], ANSWER)
    behind = [
        Arrival(BETWEEN * (1 + at), tokens[(at + 1) * SHORT :][:SHORT], ANSWER)
        for at in range(shorts)
    ]
    return [*begun, long, *behind]


def play(engine: InTurn, requests: Sequence[Arrival]) -> Played:
    """Send the requests when they come, and step until all have ended."""
    played, places = Played(), dict[int, int]()
    coming = deque(enumerate(requests))
    started = time.monotonic()
    while len(played.ends) < len(requests):
        while coming and started + coming[0][1].after <= time.monotonic():
            place, request = coming.popleft()
            places[engine.submit(request.prompt, request.tokens, speculate=False)] = place
        began = time.monotonic()
        step = engine.step()
        if isinstance(step, TargetBatch) and step.decoding_count:
            (played.gaps if step.prefill_rows else played.steps).append(time.monotonic() - began)
        for end in engine.ends():
            place = places[end.request]
            played.ends[place], played.texts[place] = end, engine.text_of(end.request)
    played.seconds = time.monotonic() - started
    return played


def summarised(played: Sequence[Played], streams: int, step: float) -> dict[str, Any]:
    """Return medians and ranges over repetitions; first tokens by place behind the streams.

    `step`: seconds of a step without prefill, of both sides: with no stream, a fair one's prompts
    may end without one, or in compiled runs of many passes.
    """
    last = len(played[0].ends)
    shorts = range(streams + 1, last)
    gaps = sorted(gap / step for one in played for gap in one.gaps)
    return {
        "seconds": median_and_range([one.seconds for one in played]),
        "long_first_token_seconds": median_and_range([one.first_token(streams) for one in played]),
        "short_first_token_seconds": median_and_range(
            [one.first_token(place) for one in played for place in shorts]
        ),
        "short_over_long": median_and_range(
            [one.first_token(p) / one.first_token(streams) for one in played for p in shorts]
        ),
        "gap_in_steps": {"median": statistics.median(gaps), "p95": gaps[int(0.95 * len(gaps))]},
    }


def ratios_of(summary: dict[str, Any], streams: int) -> dict[str, float]:
    """Return what may be quoted of one number of streams."""
    fair, first = (summary[side] for side in SIDES)
    ratios = {f"time_of_all_fair_vs_first_come_{streams}_streams": _over(fair, first, "seconds")}
    for side, of_side in summary.items():
        name = f"{side.replace(' ', '_')}_{streams}_streams"
        ratios[f"short_vs_long_first_token_{name}"] = of_side["short_over_long"].median
        ratios[f"p95_gap_in_steps_{name}"] = of_side["gap_in_steps"]["p95"]
    return ratios


def same_text(played: dict[str, list[Played]]) -> float:
    """Return the share of runs whose texts are those of the first one."""
    runs = [one.texts for all_of in played.values() for one in all_of]
    return statistics.mean(texts == runs[0] for texts in runs)


def _over(fair: dict[str, Any], first: dict[str, Any], name: str) -> float:
    return float(fair[name].median / first[name].median)


if __name__ == "__main__":
    sys.exit(main())
