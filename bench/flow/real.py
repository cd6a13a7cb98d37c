"""Real processes beside the simulation: `python -m bench.flowspec --real`.

The demo's target, cut over two and three real stages with real links (gRPC through a token bucket
and a delay), the leader of the simulation, and its draft, whose passes are waited for. Stages are
*padded*: each computes its layers, and takes as long as a slower device would; or they take what
they take, on processors that they share. Sides take turns; what stages and links took is recorded,
and the simulation says what each side writes with that. `real_cases` has speeds and links.
"""

import argparse
import functools
import itertools
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
from bench.flow.real_cases import CASES, FAST, RealCase
from bench.flow.real_plot import plot
from bench.flow.real_stages import VOCABULARY, RealStages, linked, running
from bench.flow.recording import Recording
from bench.flow.setting import MAX_ROWS, Setting
from bench.flow.sides import reach_of
from bench.flow.stages import SimulatedStages, Stages
from bench.pictures import put_title
from bench.report import Spread, median_and_range, write_report
from outrider.worker.pipeline.segment_size import SegmentPlan, plan_segments
from outrider.worker.pipeline.wire.stage_client import StageClient

STAGES = (2, 3)
REPETITIONS = 2
ROUND_SIZES = RoundSizes(8, 15, 4)
ALONE_ROWS = (2, 4, 8, 16)
"""Of segments whose time is taken while no other is under way."""
SEED = 1
SEPARATE = 64
"""Processors where recorded times are what stages took while they shared them."""
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

    case: str
    note: str
    stages: int
    links: str
    sides: dict[str, Compared]
    recorded: dict[str, Any]
    """Milliseconds of stages, links and leader, and passes that took longer than stated."""


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


def own_speed(setting: Setting, language: Language, client: StageClient) -> Setting:
    """Return the setting with the times of stages that compute one segment at a time, so that none
    takes a processor from another."""
    alone = Recording()
    for rows in ALONE_ROWS:
        sizes = RoundSizes(rows, rows - 1, 4)
        make = functools.partial(one_segment_a_round, sizes)
        alone.trips += run_real(make, setting, language, client)[1].trips
    _, recorded = run_real(plain, setting, language, client)
    alone.trips += recorded.trips
    return alone.calibrated(setting, recorded)


def one_segment_a_round(
    sizes: RoundSizes, setting: Setting, language: Language, stages: Stages
) -> PlainLeader:
    """Rounds whose trees travel whole."""
    return RoundsLeader(setting, language, sizes, stages)


def measured_setting(
    setting: Setting, case: RealCase, recorded: Mapping[str, Recording]
) -> Setting:
    """Return what the simulation is fed: median times, links and leader from plain decoding.

    Those of padded stages are of all sides together. At their own speed stages keep the times that
    they have alone: how they share processors is the simulation's to say.
    """
    together = Recording([trip for one in recorded.values() for trip in one.trips])
    measured = together.calibrated(setting, recorded["plain"])
    return measured if case.padded else replace(measured, stages=setting.stages)


def compare(
    case: str, setting: Setting, language: Language, client: StageClient, repetitions: int
) -> RealCell:
    """Run every side in turn, `repetitions` times, then simulate it with what was recorded."""
    outcomes: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    recorded: dict[str, Recording] = {side: Recording() for side in SIDES}
    for _ in range(repetitions):
        for side, make in SIDES.items():
            outcome, recording = run_real(make, setting, language, client)
            outcomes[side].append(outcome)
            recorded[side].trips += recording.trips
    measured = measured_setting(setting, CASES[case], recorded)
    sides = {}
    for side, make in SIDES.items():
        own = replace(recorded[side].with_means(measured), processors=SEPARATE)
        simulated = [run_simulated(make, each, language) for each in (measured, own)]
        sides[side] = compared(outcomes[side], simulated, language)
    together = Recording([trip for one in recorded.values() for trip in one.trips])
    facts = facts_of(setting, measured, together)
    return RealCell(case, CASES[case].note, setting.count, str(setting.links), sides, facts)


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


def ratios(case: str, cells: Sequence[RealCell]) -> dict[str, float]:
    """Return what may be quoted of the cells of one case."""
    found: dict[str, float] = {}
    for side in SIDES:
        each = [one.sides[side].deviation for one in cells]
        found[f"{case}: {side}, simulated over real, least"] = 1 + min(each)
        found[f"{case}: {side}, simulated over real, most"] = 1 + max(each)
        recorded = [one.sides[side].recorded_deviation for one in cells]
        found[f"{case}: {side}, simulated with its own times over real, least"] = 1 + min(recorded)
        found[f"{case}: {side}, simulated with its own times over real, most"] = 1 + max(recorded)
    for name, own, other in (
        ("engine over rounds", "engine", "rounds"),
        ("engine over plain", "engine", "plain"),
        ("pace over none", "engine", "engine, no pace"),
        ("engine over the plan from stated times", "engine", "continuous"),
    ):
        real = [one.sides[own].real.median / one.sides[other].real.median for one in cells]
        found[f"{case}: {name}, real, mean"] = float(np.exp(np.mean(np.log(real))))
        found[f"{case}: {name}, real, least"] = min(real)
    return found


def cells_of(name: str, count: int, repetitions: int) -> Iterator[RealCell]:
    """Yield what `compare` finds in one case over so many stages, for all its links."""
    case = CASES[name]
    setting = case.setting(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(setting, Path(folder), case.padded) as stages,
    ):
        with linked(stages, FAST) as client:
            language = text_of(setting, client, case.tokens)
            if not case.padded:
                setting = own_speed(setting, language, client)
        for links in case.links:
            with linked(stages, links) as client:
                yield compare(name, setting.over(links), language, client, repetitions)


def main(options: argparse.Namespace) -> int:
    """Compare, print, and write `results/flowspec_real.json`; returns 1 where a text differs."""
    load, cells = os.getloadavg(), []
    out = options.out.with_name(f"{options.out.stem}_real.json")
    for name, count in itertools.product(options.cases, STAGES):
        for cell in cells_of(name, count, options.repetitions):
            cells.append(cell)
            print(line_of(cell), flush=True)
    found: dict[str, float] = {}
    for name in options.cases:
        found |= ratios(name, [one for one in cells if one.case == name])
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    write_report(
        out,
        command=" ".join(["python -m bench.flowspec", *sys.argv[1:]]),
        results={"cells": [asdict(one) for one in cells]},
        ratios=found,
        load_average=load,
    )
    plot(cells, out.with_suffix(".png"))
    put_title(out)
    same = all(side.same_text for one in cells for side in one.sides.values())
    return 0 if same else 1


def line_of(one: RealCell) -> str:
    """Return a cell in a line: tokens a second, real and simulated."""
    rates = "  ".join(
        f"{side} {f.real.median:.3g} ({f.simulated:.3g}, {f.deviation:+.1%}; "
        f"{f.recorded_deviation:+.1%})"
        for side, f in one.sides.items()
    )
    return f"{one.case}, {one.stages} stages, {one.links}: {rates}; {one.recorded}"
