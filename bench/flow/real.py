"""Real processes beside the simulation: `python -m bench.flowspec --real`.

The demo's target, cut over two and three real stages with real links (gRPC through a token bucket
and a delay), the leader of the simulation, and its draft, whose passes are waited for. Stages are
*padded*: each computes its layers, and takes as long as a slower device would. Sides take turns;
what stages and links took is recorded, and the simulation says what each side writes with that.
"""

import argparse
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.flow.language import Language, pair_guesses
from bench.flow.leader_host import (
    PROMPT,
    ContinuousLeader,
    MeasuredLeader,
    PlainLeader,
    RoundSizes,
    RoundsLeader,
    slots_for,
)
from bench.flow.outcome import Outcome
from bench.flow.real_plot import plot
from bench.flow.real_stages import VOCABULARY, RealStages, linked, running
from bench.flow.recording import Recording
from bench.flow.setting import MAX_ROWS, Links, Setting, demo
from bench.flow.sides import reach_of
from bench.flow.stages import SimulatedStages, Stages
from bench.report import Spread, median_and_range, write_report
from outrider.cli.lanes import draw
from outrider.worker.pipeline.segment_size import SegmentPlan, plan_segments
from outrider.worker.pipeline.wire.stage_client import StageClient

STAGES = (2, 3)
RATES = (150e6, 1e9)
DELAYS = (0.0, 10e-3)
TOKENS, REPETITIONS, SLOWER = 24, 2, 10.0
ROUND_SIZES = RoundSizes(8, 15, 4)
SEED = 1
Make = Callable[[Setting, Language, Stages], PlainLeader]


def plain(setting: Setting, language: Language, stages: Stages) -> PlainLeader:
    """Decoding without drafts."""
    return PlainLeader(setting, language, SegmentPlan(1, 1, MAX_ROWS), stages)


def rounds(setting: Setting, language: Language, stages: Stages) -> PlainLeader:
    """Chunked speculation in rounds."""
    return RoundsLeader(setting, language, ROUND_SIZES, stages)


def continuous(setting: Setting, language: Language, stages: Stages) -> PlainLeader:
    """This project's pipeline, planned once from the stated times."""
    plan = plan_segments(setting.times(), reach_of(language), MAX_ROWS)
    return ContinuousLeader(setting, language, plan, stages)


SIDES: Mapping[str, Make] = {
    "plain": plain,
    "rounds": rounds,
    "continuous": continuous,
    "engine": MeasuredLeader,
    "engine, no pace": functools.partial(MeasuredLeader, paced=False),
}
"""`engine` plans as the product's engine does, from the times that come back with results."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One side over real stages and over simulated ones; tokens a second."""

    real: Spread
    real_mean: float
    """Tokens of all its runs over their seconds."""
    simulated: float
    """With the median times of all sides."""
    as_recorded: float
    """Simulated with the mean times of its own real runs, stalls included."""
    busy: float
    """Share of the time for which the real stages computed, on average."""
    simulated_busy: float
    same_text: bool
    """All its texts are that of plain decoding."""

    @property
    def deviation(self) -> float:
        """By how much the simulation is above the median of the real runs."""
        return self.simulated / self.real.median - 1

    @property
    def recorded_deviation(self) -> float:
        """Likewise, with the times of its own runs, of the mean of the real runs."""
        return self.as_recorded / self.real_mean - 1


@dataclass(frozen=True, slots=True)
class RealCell:
    """All sides in one setting."""

    stages: int
    links: str
    sides: dict[str, Compared]
    recorded: dict[str, Any]
    """Milliseconds of stages, links and leader, and passes that took longer than stated."""


def padded(count: int, links: Links, slower: float) -> Setting:
    """Return the setting of the demo's pair on devices `slower` times slower than `demo` says."""
    whole = demo(count, links)
    return replace(
        whole,
        name=f"demo, {slower:g} times slower",
        stages=slower * whole.stages,
        draft=slower * whole.draft,
        host=0.0,
    )


def run_real(
    make: Make, setting: Setting, language: Language, client: StageClient
) -> tuple[Outcome, Recording]:
    """Run one side over real stages."""
    stages = RealStages(client)
    host = make(setting, language, stages)
    outcome = host.run()
    stages.finish(host.leader.outgoing)
    host.leader.outgoing.clear()
    return outcome, stages.recording


def run_simulated(make: Make, setting: Setting, language: Language) -> Outcome:
    """Run one side over simulated stages."""
    stages = SimulatedStages(setting, language, slots_for(language), tells_times=True)
    return make(setting, language, stages).run()


def text_of(setting: Setting, client: StageClient, tokens: int) -> Language:
    """Decode a text plainly; return it with what the demo's draft guesses along texts."""
    random = np.random.default_rng(SEED)
    unknown = random.integers(100, 4000, PROMPT + tokens).astype(np.int32)
    guesses = pair_guesses()
    asked = Language.around(guesses, unknown, VOCABULARY)
    outcome, _ = run_real(plain, setting, asked, client)
    text = np.concatenate([unknown[:PROMPT], outcome.text])
    return Language.around(guesses, text, VOCABULARY)


def compare(
    setting: Setting, language: Language, client: StageClient, repetitions: int
) -> tuple[RealCell, Outcome]:
    """Run every side in turn, `repetitions` times, then simulate it with what was recorded.

    Returns a run of the engine, too.
    """
    outcomes: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    recorded: dict[str, Recording] = {side: Recording() for side in SIDES}
    for _ in range(repetitions):
        for side, make in SIDES.items():
            outcome, recording = run_real(make, setting, language, client)
            outcomes[side].append(outcome)
            recorded[side].trips += recording.trips
    together = Recording([trip for one in recorded.values() for trip in one.trips])
    measured = together.calibrated(setting, recorded["plain"])
    sides = {}
    for side, make in SIDES.items():
        own = recorded[side].with_means(measured)
        simulated = [run_simulated(make, each, language) for each in (measured, own)]
        sides[side] = compared(outcomes[side], simulated, language)
    facts = facts_of(setting, measured, together)
    return RealCell(setting.count, str(setting.links), sides, facts), outcomes["engine"][0]


def compared(real: Sequence[Outcome], simulated: Sequence[Outcome], language: Language) -> Compared:
    """Join the runs of one side; `simulated`: with median times, and with its own means."""
    texts = [one.text for one in (*real, *simulated)]
    return Compared(
        median_and_range([one.rate for one in real]),
        sum(one.tokens for one in real) / sum(one.seconds for one in real),
        simulated[0].rate,
        simulated[1].rate,
        float(np.median([one.busy for one in real])),
        simulated[0].busy,
        all(np.array_equal(text, language.text[PROMPT:]) for text in texts),
    )


def facts_of(setting: Setting, measured: Setting, recording: Recording) -> dict[str, Any]:
    """Return what was recorded, in milliseconds."""
    rows = (1, 4, 8, 16)
    return {
        "stated_stage_ms": [1e3 * setting.stage(0, count) for count in rows],
        "stage_ms": [
            [1e3 * measured.stage(number, count) for count in rows]
            for number in range(setting.count)
        ],
        "link_ms": 1e3 * measured.links.delay,
        "host_ms": 1e3 * measured.host,
        "passes_a_tenth_longer_than_stated": recording.overrun(setting),
    }


def draw_lanes(outcome: Outcome, cell: RealCell, path: Path) -> None:
    """Draw what real stages computed for the engine, from the first commit on."""
    spans = [span for span in outcome.spans if span.begin >= outcome.began]
    draw(spans, lanes_title(outcome.tokens, cell), path)


def lanes_title(tokens: int, cell: RealCell) -> str:
    """Return what a drawing of the engine's run is of."""
    return f"engine: {tokens} tokens over {cell.stages} real, padded stages, {cell.links}"


def ratios(cells: Sequence[RealCell]) -> dict[str, float]:
    """Return what may be quoted."""
    found: dict[str, float] = {}
    for side in SIDES:
        each = [one.sides[side].deviation for one in cells]
        found[f"{side}, simulated over real, least"] = 1 + min(each)
        found[f"{side}, simulated over real, most"] = 1 + max(each)
        recorded = [one.sides[side].recorded_deviation for one in cells]
        found[f"{side}, simulated with its own times over real, least"] = 1 + min(recorded)
        found[f"{side}, simulated with its own times over real, most"] = 1 + max(recorded)
    for name, own, other in (
        ("engine over rounds", "engine", "rounds"),
        ("engine over plain", "engine", "plain"),
        ("pace over none", "engine", "engine, no pace"),
        ("engine over the plan from stated times", "engine", "continuous"),
    ):
        real = [one.sides[own].real.median / one.sides[other].real.median for one in cells]
        found[f"{name}, real, mean"] = float(np.exp(np.mean(np.log(real))))
        found[f"{name}, real, least"] = min(real)
    return found


def cells_of(count: int, options: argparse.Namespace) -> Iterator[tuple[RealCell, Outcome]]:
    """Yield what `compare` finds over so many stages, for all links."""
    setting = padded(count, Links(max(RATES), 0.0), options.slower)
    with tempfile.TemporaryDirectory() as folder, running(setting, Path(folder)) as stages:
        with linked(stages, setting.links) as client:
            language = text_of(setting, client, options.real_tokens)
        for rate in RATES:
            for delay in options.delays:
                shaped = setting.over(Links(rate, delay))
                with linked(stages, shaped.links) as client:
                    yield compare(shaped, language, client, options.repetitions)


def main(options: argparse.Namespace) -> int:
    """Compare, print, and write `results/flowspec_real.json`; returns 1 where a text differs.

    Draws the engine over the slowest links.
    """
    load, cells = os.getloadavg(), []
    out = options.out.with_name(f"{options.out.stem}_real.json")
    drawn = str(Links(min(RATES), max(options.delays)))
    for count in STAGES:
        for cell, outcome in cells_of(count, options):
            cells.append(cell)
            print(line_of(cell), flush=True)
            if cell.links == drawn:
                name = f"{options.out.stem}_lanes_real_{count}.svg"
                draw_lanes(outcome, cell, out.with_name(name))
    found = ratios(cells)
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    plot(cells, out.with_suffix(".png"), f"stages padded: {options.slower:g} times slower")
    write_report(
        out,
        command=" ".join(["python -m bench.flowspec", *sys.argv[1:]]),
        results={"padded": f"{options.slower:g} times", "cells": [asdict(one) for one in cells]},
        ratios=found,
        load_average=load,
    )
    same = all(side.same_text for one in cells for side in one.sides.values())
    return 0 if same else 1


def line_of(one: RealCell) -> str:
    """Return a cell in a line: tokens a second, real and simulated."""
    rates = "  ".join(
        f"{side} {f.real.median:.3g} ({f.simulated:.3g}, {f.deviation:+.1%}; "
        f"{f.recorded_deviation:+.1%})"
        for side, f in one.sides.items()
    )
    return f"{one.stages} stages, {one.links}: {rates}; {one.recorded}"
