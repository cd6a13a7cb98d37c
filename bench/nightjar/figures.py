"""Figures of `nightjar`: ratios, tables and plots of outcomes. Pure but for the plots' files."""

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.nightjar.run import Outcome
from bench.record.report import headless_pyplot

Outcomes = Mapping[str, Mapping[str, Mapping[str, Outcome]]]
"""Outcomes by pair, load and side."""
PLAIN, ORACLE = "off", "oracle"
NOT_FIXED = ("bandit", "goodput", ORACLE)
"""Sides that decide as they go."""


def fixed(by_side: Mapping[str, Outcome]) -> list[str]:
    """Return the sides that always do the same, plain decoding among them."""
    return [name for name in by_side if name not in NOT_FIXED]


def best_fixed(by_side: Mapping[str, Outcome]) -> str:
    """Return the fixed side with the most tokens a second."""
    return max(fixed(by_side), key=lambda name: by_side[name].tokens_per_second)


def cells(outcomes: Outcomes) -> Iterator[tuple[str, str, Mapping[str, Outcome]]]:
    """Yield pair, load and what all sides came to."""
    for pair, by_load in outcomes.items():
        for load, by_side in by_load.items():
            yield pair, load, by_side


def ratios(outcomes: Outcomes) -> dict[str, float]:
    """Return what may be quoted."""
    found = {}
    every = [by_side for _, _, by_side in cells(outcomes)]
    for side in every[0]:
        if side == PLAIN:
            continue
        word = side.replace(" ", "_")
        by_pair = {
            pair: [over(by_side, side, PLAIN) for by_side in by_load.values()]
            for pair, by_load in outcomes.items()
        }
        found |= {f"{word}_vs_off_{pair}": statistics.mean(r) for pair, r in by_pair.items()}
        found[f"{word}_vs_off_mean"] = statistics.mean(r for by in by_pair.values() for r in by)
        found[f"{word}_mean_latency_vs_off"] = statistics.mean(
            by_side[side].mean_seconds / by_side[PLAIN].mean_seconds for by_side in every
        )
        found[f"{word}_p99_latency_vs_off"] = statistics.mean(
            by_side[side].p99_seconds / by_side[PLAIN].p99_seconds for by_side in every
        )
        found[f"{word}_first_token_vs_off"] = statistics.mean(
            by_side[side].first_token_seconds / by_side[PLAIN].first_token_seconds
            for by_side in every
        )
        if side != ORACLE:
            regrets = [1 - over(by_side, side, ORACLE) for by_side in every]
            found[f"{word}_regret_mean"] = statistics.mean(regrets)
            found[f"{word}_regret_most"] = max(regrets)
    found["goodput_vs_best_static_least"] = min(
        over(by_side, "goodput", best_fixed(by_side)) for by_side in every
    )
    found["goodput_vs_bandit_least"] = min(over(by_side, "goodput", "bandit") for by_side in every)
    return found


def over(by_side: Mapping[str, Outcome], side: str, other: str) -> float:
    """Return one side's tokens a second by another's."""
    return by_side[side].tokens_per_second / by_side[other].tokens_per_second


def table(outcomes: Outcomes) -> str:
    """Return lines of tokens a second over plain decoding's, latencies and shares, by load."""
    lines = []
    for pair, load, by_side in cells(outcomes):
        plain = by_side[PLAIN]
        lines.append(
            f"{pair} {load}: plain {plain.tokens_per_second:.0f} tokens/s, answers in "
            f"{plain.mean_seconds:.2f} s, 99th percentile {plain.p99_seconds:.2f} s"
        )
        for side, one in by_side.items():
            lines.append(
                f"    {side:9} {over(by_side, side, PLAIN):6.3f} of its tokens/s, "
                f"{one.mean_seconds / plain.mean_seconds:6.3f} of its mean latency, "
                f"{one.p99_seconds / plain.p99_seconds:6.3f} of p99, "
                f"{one.first_token_seconds / plain.first_token_seconds:6.3f} to the first token, "
                f"{one.off_share:4.0%} of passes without draft tokens"
            )
    return "\n".join(lines)


def plot(outcomes: Outcomes, path: Path) -> None:
    """Draw tokens a second and mean latency over plain decoding's, a column for each pair."""
    pyplot = headless_pyplot()

    columns = len(outcomes)
    figure, axes = pyplot.subplots(
        2, columns, figsize=(4.2 * columns, 7), layout="constrained", squeeze=False, sharex="col"
    )
    for column, (pair, by_load) in enumerate(outcomes.items()):
        names = list(by_load)
        for side in next(iter(by_load.values())):
            style = {"marker": "o", "linewidth": 2.4 if side in NOT_FIXED else 1.0}
            speeds = [over(by_side, side, PLAIN) for by_side in by_load.values()]
            delays = [b[side].mean_seconds / b[PLAIN].mean_seconds for b in by_load.values()]
            axes[0][column].plot(names, speeds, label=side, **style)
            axes[1][column].plot(names, delays, **style)
        axes[0][column].set_title(f"{pair}, simulated")
        axes[1][column].tick_params(axis="x", labelrotation=40)
        for row in (0, 1):
            axes[row][column].axhline(1, color="0.7", linewidth=0.8)
    axes[0][0].set_ylabel("tokens per second, over plain decoding's")
    axes[1][0].set_ylabel("mean latency, over plain decoding's")
    axes[0][-1].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
