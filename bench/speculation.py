"""Plain, serial and asynchronous speculation side by side: `python -m bench.speculation`.

Three services run at once, asked one after the other, each alone: the target by itself at its best
number of threads, target and draft serially in one process on all threads, target and draft in two
processes that share the same threads. Every answer is checked against plain decoding's.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import statistics
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.report import RESULTS, Prompt, Spread, median_and_range, prompts, write_report
from outrider.cli import processors
from outrider.cli.progress import reporter
from outrider.cli.service_file import read_service
from outrider.cli.trial import Arrangement, running
from outrider.client import AsyncClient, Message, Result, Sampling, State
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

SERVICE = Path(__file__).parent.parent / "examples" / "smollm2.yaml"
MODES = {
    "greedy": Sampling(temperature=0.0),
    "temperature 0.8": Sampling(temperature=0.8, seed=1),
}


@dataclass(frozen=True, slots=True)
class Side:
    """One service under test."""

    name: str
    client: AsyncClient
    speculate: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Time of one side for one prompt."""

    tokens: int
    seconds: float
    passes: int
    draft_rows: int
    accepted_rows: int
    wait_seconds: float
    plain_seconds: float

    @classmethod
    def of(cls, result: Result) -> "Answer":
        """Return figures of decoding: the first token is the prompt's."""
        usage, timing = result.usage, result.timing
        return cls(
            tokens=usage.completion_tokens - 1,
            seconds=timing.decode_seconds,
            passes=usage.passes,
            draft_rows=usage.draft_rows,
            accepted_rows=usage.accepted_rows,
            wait_seconds=timing.draft_wait_seconds,
            plain_seconds=timing.plain_seconds,
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """One side in one mode, over all repetitions."""

    tokens_per_second: Spread
    tokens_per_pass: float
    rows_per_pass: float
    milliseconds_per_pass: float
    wait_milliseconds_per_pass: float
    gain: float


def main() -> int:
    """Measure, write JSON and plot, print a table."""
    options = parse()
    load = os.getloadavg()
    measured = asyncio.run(run(options))
    ratios = all_ratios(measured)
    write_report(
        options.out,
        command="python -m bench.speculation " + " ".join(sys.argv[1:]),
        results=measured,
        ratios=ratios,
        load_average=load,
    )
    plot(measured, ratios, options.out.with_suffix(".png"))
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what README quotes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS / "speculation.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the sides, ask one after the other, and sum up."""
    service = read_service(options.file)
    cores = processors.count()
    chosen = prompts()[: options.prompts]
    async with contextlib.AsyncExitStack() as stack:
        plain = [await side(stack, service, f"plain {n}", None, n) for n in sorted({1, cores})]
        sides = [
            await side(stack, service, "serial", Placement.COLOCATED, cores),
            await side(stack, service, "async", Placement.SEPARATE, max(1, cores - 1)),
        ]
        best = await fastest(plain, chosen[:3], options.max_tokens)
        sides = [best, *sides]
        for warm in sides:
            await ask(warm, chosen[0], options.max_tokens, MODES["greedy"])
        states = {s.name: await s.client.state() for s in sides}
        answers, same = await repeat(sides, chosen, options)
        after = {s.name: await s.client.state() for s in sides}
    return sum_up(answers, same, states, after) | {"plain_side": best.name}


async def side(
    stack: contextlib.AsyncExitStack,
    service: SpeculativeService,
    name: str,
    placement: Placement | None,
    threads: int,
) -> Side:
    """Start one service; `placement` None has no draft.

    Drafting is never turned off: this measures speculation, not the decision to do without.
    """
    speculation = service.spec.speculation.model_copy(update={"mode": SpeculationMode.STATIC})
    spec = service.spec.model_copy(update={"speculation": speculation})
    kept_on = service.model_copy(update={"spec": spec})
    started = running(kept_on, Arrangement(placement, threads), PlanOptions(), reporter())
    client = await stack.enter_async_context(started)
    return Side(name, client, placement is not None)


async def fastest(sides: list[Side], chosen: list[Prompt], tokens: int) -> Side:
    """The side with the most tokens per second over a few prompts."""
    rates = {}
    for one in sides:
        answers = [await ask(one, p, tokens, MODES["greedy"]) for p in chosen]
        rates[one.name] = sum(len(a.token_ids) for a in answers) / sum(
            a.timing.decode_seconds for a in answers
        )
    return max(sides, key=lambda s: rates[s.name])


async def ask(one: Side, prompt: Prompt, tokens: int, sampling: Sampling) -> Result:
    """One answer."""
    return await one.client.complete(
        [Message("user", prompt.text)],
        max_tokens=tokens,
        sampling=sampling,
        speculate=one.speculate,
    )


Answers = dict[str, dict[str, list[list[Answer]]]]


async def repeat(
    sides: list[Side], chosen: list[Prompt], options: argparse.Namespace
) -> tuple[Answers, dict[str, float]]:
    """answers[mode][side][repetition][prompt], and the share of equal texts by mode."""
    answers: Answers = {mode: {s.name: [] for s in sides} for mode in MODES}
    same: dict[str, list[bool]] = {mode: [] for mode in MODES}
    async for mode, repetition in turns(options.repetitions):
        for s in sides:
            answers[mode][s.name].append([])
        for number, prompt in enumerate(chosen):
            first = (repetition + number) % len(sides)
            texts = {}
            for s in (*sides[first:], *sides[:first]):
                result = await ask(s, prompt, options.max_tokens, MODES[mode])
                texts[s.name] = result.token_ids
                answers[mode][s.name][-1].append(Answer.of(result))
            same[mode].append(len(set(texts.values())) == 1)
    return answers, {mode: statistics.mean(flags) for mode, flags in same.items()}


async def turns(repetitions: int) -> AsyncIterator[tuple[str, int]]:
    """Every mode in every repetition, with a line of progress each."""
    for repetition in range(repetitions):
        for mode in MODES:
            print(f"repetition {repetition + 1} of {repetitions}, {mode}", file=sys.stderr)
            yield mode, repetition


def sum_up(
    answers: Answers, same: dict[str, float], before: dict[str, State], after: dict[str, State]
) -> dict[str, Any]:
    """Return figures by mode and side, and each side's ceiling."""
    modes: dict[str, Any] = {}
    for mode, by_side in answers.items():
        summaries = {name: summary(runs) for name, runs in by_side.items()}
        ceilings = {name: ceiling(s, before[name], after[name]) for name, s in summaries.items()}
        modes[mode] = {
            "same_text": same[mode],
            "sides": {name: asdict(s) for name, s in summaries.items()},
            "ceiling_tokens_per_second": ceilings,
            "share_of_ceiling": {
                name: s.tokens_per_second.median / ceilings[name] for name, s in summaries.items()
            },
            "geometric_mean_over_plain": over_plain(by_side),
        }
    return {
        "modes": modes,
        "step_seconds": {name: state.step_seconds for name, state in before.items()},
        "dtype": {name: state.dtype for name, state in before.items()},
        "threads": {name: state.threads for name, state in before.items()},
    }


def summary(runs: list[list[Answer]]) -> Summary:
    """One side in one mode."""
    rates = [sum(a.tokens for a in run) / sum(a.seconds for a in run) for run in runs]
    every = [a for run in runs for a in run]
    passes = sum(a.passes for a in every)
    waits = sum(a.wait_seconds for a in every)
    return Summary(
        tokens_per_second=median_and_range(rates),
        tokens_per_pass=sum(a.tokens for a in every) / passes,
        rows_per_pass=sum(a.draft_rows for a in every) / passes,
        milliseconds_per_pass=1e3 * (sum(a.seconds for a in every) - waits) / passes,
        wait_milliseconds_per_pass=1e3 * waits / passes,
        gain=sum(a.plain_seconds for a in every) / sum(a.seconds for a in every),
    )


def ceiling(found: Summary, before: State, after: State) -> float:
    """Tokens per second if a pass took no more than its measured step cost.

    Drafting beside the target is taken as free; serial, it takes the time that it was seen to take.
    """
    seconds = interpolate(before.step_seconds, found.rows_per_pass + 1)
    passes = after.counters.passes - before.counters.passes
    drafting = after.counters.drafting_seconds - before.counters.drafting_seconds
    return found.tokens_per_pass / (seconds + drafting / max(passes, 1))


def interpolate(costs: dict[int, float], rows: float) -> float:
    """Return seconds of a pass of a fractional number of rows."""
    points = sorted(costs.items())
    for (low, a), (high, b) in itertools.pairwise(points):
        if rows <= high:
            return a + (b - a) * max(0.0, rows - low) / (high - low)
    return points[-1][1]


def over_plain(by_side: dict[str, list[list[Answer]]]) -> dict[str, float]:
    """Return geometric mean over prompts of each side's median rate by plain decoding's."""
    names = list(by_side)
    medians = {name: prompt_rates(runs) for name, runs in by_side.items()}
    return {
        name: math.exp(
            statistics.mean(
                math.log(rate / base)
                for rate, base in zip(medians[name], medians[names[0]], strict=True)
            )
        )
        for name in names
    }


def prompt_rates(runs: list[list[Answer]]) -> list[float]:
    """Median tokens per second of each prompt over the repetitions."""
    return [
        statistics.median(a.tokens / a.seconds for a in turn) for turn in zip(*runs, strict=True)
    ]


def all_ratios(measured: dict[str, Any]) -> dict[str, float]:
    """Return what may be quoted: geometric means over prompts and modes, then by mode."""
    by_mode = {
        mode: values["geometric_mean_over_plain"] for mode, values in measured["modes"].items()
    }
    ratios = {
        "async_vs_plain": mean(m["async"] for m in by_mode.values()),
        "serial_vs_plain": mean(m["serial"] for m in by_mode.values()),
        "async_vs_serial": mean(m["async"] / m["serial"] for m in by_mode.values()),
    }
    for mode, values in measured["modes"].items():
        key = mode.replace(" ", "_")
        ratios[f"async_vs_plain_{key}"] = by_mode[mode]["async"]
        ratios[f"serial_vs_plain_{key}"] = by_mode[mode]["serial"]
        for name in ("async", "serial"):
            ratios[f"{name}_share_of_ceiling_{key}"] = values["share_of_ceiling"][name]
    return ratios


def mean(values: Any) -> float:
    """Return geometric mean."""
    return math.exp(statistics.mean(math.log(v) for v in values))


def plot(measured: dict[str, Any], ratios: dict[str, float], path: Path) -> None:
    """Bars of tokens per second with their ranges, and ceilings as ticks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    modes = measured["modes"]
    figure, axes = pyplot.subplots(1, len(modes), figsize=(9, 3.6), sharey=True)
    for axis, (mode, values) in zip(axes, modes.items(), strict=True):
        for at, (name, s) in enumerate(values["sides"].items()):
            rate = s["tokens_per_second"]
            error = [[rate["median"] - rate["low"]], [rate["high"] - rate["median"]]]
            axis.bar(at, rate["median"], yerr=error, width=0.6, color=f"C{at}", capsize=4)
            if name in ("serial", "async"):
                top = values["ceiling_tokens_per_second"][name]
                axis.hlines(top, at - 0.35, at + 0.35, color="black", linestyle=":")
            ratio = values["geometric_mean_over_plain"][name]
            axis.text(at, rate["median"] / 2, f"{ratio:.2f} x", ha="center", color="white")
        names = list(values["sides"])
        axis.set_xticks(range(len(names)), names)
        axis.set_title(mode)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("tokens per second (dotted: ceiling)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
