"""Figures of `bench.speculation`: what answers and counters come to, by side and mode.

Pure. Leaves asking to `speculation`, and reading counters to `bench.sides`.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.record.report import Spread, median_and_range
from bench.sides.services import Answer, Counts
from outrider.cli.top import difference
from outrider.client import Counters
from outrider.contract.counters import GROWTH_LATENCY_BOUNDS


@dataclass(frozen=True, slots=True)
class Latency:
    """Times from a commit to the first growth that knows it."""

    median_ms: float
    p99_ms: float
    n: int


@dataclass(frozen=True, slots=True)
class PassCounters:
    """What the counters of one side say of its passes."""

    blind_share: float
    """Share of verify passes for which no node was there."""
    resting_share: float
    """Share of verify passes for which the switch was off."""
    host_ms_per_pass: float
    """Host milliseconds of the target's engine, between passes and not waiting; where target and
    draft share a loop, of both, by passes of the target."""
    draft_host_ms_per_pass: float | None
    """Host milliseconds of a draft's engine, by its own passes; None where there is no such
    engine."""
    draft_passes_per_pass: float | None
    """Passes of the drafts for each of the target's; None where they are not counted."""
    growth_latency: Latency | None
    """None if there was no growth."""


def counted(counts: Sequence[Counts]) -> PassCounters:
    """Sum up the counters of several runs of one side, in which there were passes."""
    target = total(one.target for one in counts)
    drafts = total(draft for one in counts for draft in one.drafts)
    return PassCounters(
        blind_share=target.blind_passes / target.passes,
        resting_share=target.resting_passes / target.passes,
        host_ms_per_pass=1e3 * target.host_seconds / target.steps,
        draft_host_ms_per_pass=1e3 * drafts.host_seconds / drafts.passes if drafts.passes else None,
        draft_passes_per_pass=drafts.passes / target.passes if drafts.passes else None,
        growth_latency=latency(target.growth_latencies),
    )


def total(counters: Iterable[Counters]) -> Counters:
    """Add up counters field by field."""
    found = Counters()
    for one in counters:
        found = difference(difference(one, Counters()), found)  # less minus one
    return found


def latency(counts: Sequence[int]) -> Latency | None:
    """Return median and 99th percentile of a histogram; None of one that holds nothing."""
    if sum(counts) == 0:
        return None
    return Latency(1e3 * quantile(counts, 0.5), 1e3 * quantile(counts, 0.99), sum(counts))


def quantile(counts: Sequence[int], share: float) -> float:
    """Return the value below which a share of a histogram lies, in seconds.

    Values are taken as evenly spread over their bucket, as Prometheus' histogram_quantile does;
    those beyond the last bound count as that bound.
    """
    wanted, below = share * sum(counts), 0
    bounds = itertools.pairwise((0.0, *GROWTH_LATENCY_BOUNDS))
    for (low, high), count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below += count
    return GROWTH_LATENCY_BOUNDS[-1]


Runs = Sequence[Sequence[Answer]]
"""Answers by repetition and prompt."""


@dataclass(slots=True)
class Measured:
    """All that was measured of one side in one mode."""

    answers: list[list[Answer]] = field(default_factory=list)
    """Answers by repetition and prompt."""
    counts: list[Counts] = field(default_factory=list)
    """Counts by repetition; empty for a side without counters."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One side in one mode, over all repetitions."""

    tokens_per_second: Spread
    tokens_per_pass: float
    rows_per_pass: float
    milliseconds_per_pass: float
    wait_milliseconds_per_pass: float
    gain: float
    counted: PassCounters | None


def sum_up(
    measured: Mapping[str, Mapping[str, Measured]],
    step_seconds: Mapping[str, Mapping[int, float]],
    bases: Mapping[str, str],
) -> dict[str, Any]:
    """Return figures by mode and side, and each side's ceiling.

    `measured`: by mode and side; `step_seconds`: by side and rows; `bases`: for each name of a
    ratio, the side by which all are divided.
    """
    return {mode: _of_mode(by_side, step_seconds, bases) for mode, by_side in measured.items()}


def _of_mode(
    by_side: Mapping[str, Measured],
    step_seconds: Mapping[str, Mapping[int, float]],
    bases: Mapping[str, str],
) -> dict[str, Any]:
    summaries = {name: summary(one) for name, one in by_side.items()}
    ceilings = {
        name: ceiling(summaries[name], one, step_seconds[name])
        for name, one in by_side.items()
        if one.counts
    }
    answers = {name: one.answers for name, one in by_side.items()}
    own = [one.answers for one in by_side.values() if one.counts]
    return {
        "same_text": same_text(own),
        "same_text_as_pinned": same_text([*answers.values()]) if len(own) < len(answers) else None,
        "sides": {name: asdict(one) for name, one in summaries.items()},
        "ceiling_tokens_per_second": ceilings,
        "share_of_ceiling": {
            name: summaries[name].tokens_per_second.median / top for name, top in ceilings.items()
        },
    } | {f"geometric_mean_over_{name}": over(answers, base) for name, base in bases.items()}


def summary(measured: Measured) -> Summary:
    """One side in one mode."""
    runs = measured.answers
    every = [a for run in runs for a in run]
    passes = sum(a.passes for a in every)
    waits = sum(a.wait_seconds for a in every)
    return Summary(
        tokens_per_second=median_and_range(
            [sum(a.tokens for a in run) / sum(a.seconds for a in run) for run in runs]
        ),
        tokens_per_pass=sum(a.tokens for a in every) / passes,
        rows_per_pass=sum(a.draft_rows for a in every) / passes,
        milliseconds_per_pass=1e3 * (sum(a.seconds for a in every) - waits) / passes,
        wait_milliseconds_per_pass=1e3 * waits / passes,
        gain=sum(a.plain_seconds for a in every) / sum(a.seconds for a in every),
        counted=counted(measured.counts) if measured.counts else None,
    )


def ceiling(found: Summary, measured: Measured, costs: Mapping[int, float]) -> float:
    """Tokens per second if a pass took no more than its measured step cost.

    Drafting beside the target is taken as free; that of a colocated draft takes the time that it
    was seen to take.
    """
    counters = total(one.target for one in measured.counts)
    seconds = interpolate(costs, found.rows_per_pass + 1)
    return found.tokens_per_pass / (seconds + counters.drafting_seconds / max(counters.passes, 1))


def interpolate(costs: Mapping[int, float], rows: float) -> float:
    """Return seconds of a pass of a fractional number of rows."""
    points = sorted(costs.items())
    for (low, a), (high, b) in itertools.pairwise(points):
        if rows <= high:
            return a + (b - a) * max(0.0, rows - low) / (high - low)
    return points[-1][1]


def same_text(sides: Sequence[Runs]) -> float:
    """Return the share of prompts, over all repetitions, at which all sides gave the same text."""
    texts = [[a.token_ids for run in runs for a in run] for runs in sides]
    return statistics.mean(len(set(each)) == 1 for each in zip(*texts, strict=True))


def over(by_side: Mapping[str, Runs], base: str) -> dict[str, float]:
    """Return geometric means over prompts of each side's median rate by that of `base`."""
    medians = {name: prompt_rates(runs) for name, runs in by_side.items()}
    return {
        name: geometric_mean(a / b for a, b in zip(rates, medians[base], strict=True))
        for name, rates in medians.items()
    }


def prompt_rates(runs: Runs) -> list[float]:
    """Median tokens per second of each prompt over the repetitions."""
    return [
        statistics.median(a.tokens / a.seconds for a in turn) for turn in zip(*runs, strict=True)
    ]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean; raises `StatisticsError` where there is no value."""
    return math.exp(statistics.mean(math.log(v) for v in values))


def all_ratios(
    modes: Mapping[str, Mapping[str, Any]], bases: Mapping[str, str], pairs: Mapping[str, str]
) -> dict[str, float]:
    """Return what may be quoted: geometric means over prompts and modes, then by mode.

    `bases` as `sum_up` has them; `pairs`: by name of a side that is quoted, the side of the pinned
    commit; empty: there is none.
    """
    ratios: dict[str, float] = {}
    means = {mode: values["geometric_mean_over_plain"] for mode, values in modes.items()}
    for name, pinned in pairs.items():
        ratios[f"{name}_vs_plain"] = geometric_mean(m[name] for m in means.values())
        if pinned:
            ratios |= _by_pinned(modes, name, pinned)
    if "pinned_plain" in bases:
        own = (values["geometric_mean_over_pinned_plain"] for values in modes.values())
        ratios["plain_vs_pinned_plain"] = geometric_mean(m[bases["plain"]] for m in own)
    if "Separate" in pairs and "Colocated" in pairs:
        each = (m["Separate"] / m["Colocated"] for m in means.values())
        ratios["Separate_vs_Colocated"] = geometric_mean(each)
    for mode, values in modes.items():
        key = mode.replace(" ", "_")
        for name in pairs:
            ratios[f"{name}_vs_plain_{key}"] = means[mode][name]
            ratios[f"{name}_share_of_ceiling_{key}"] = values["share_of_ceiling"][name]
    return ratios


def _by_pinned(modes: Mapping[str, Mapping[str, Any]], name: str, pinned: str) -> dict[str, float]:
    """Return a side's rate by the pinned commit's plain decoding, and by that side of its own."""
    found = [values["geometric_mean_over_pinned_plain"] for values in modes.values()]
    return {
        f"{name}_vs_pinned_plain": geometric_mean(m[name] for m in found),
        f"{name}_vs_{pinned.replace(' ', '_')}": geometric_mean(m[name] / m[pinned] for m in found),
    }
