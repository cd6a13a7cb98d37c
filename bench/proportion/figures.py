"""Figures of `bench.proportion`: what each arrangement gains, and what its step costs predict.

Pure. Leaves running services to `proportion`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.speculation.figures import (
    Measured,
    Summary,
    geometric_mean,
    interpolate,
    over,
    same_text,
    summary,
    total,
)

PLAIN = "plain"
"""Begin of the names of sides without a draft."""


def of_depth(
    modes: Mapping[str, Mapping[str, Measured]], step_seconds: Mapping[str, Mapping[int, float]]
) -> dict[str, Any]:
    """Return the figures of one target by mode and side; `step_seconds`: by side and rows."""
    return {mode: _of_mode(by_side, step_seconds) for mode, by_side in modes.items()}


def _of_mode(
    by_side: Mapping[str, Measured], step_seconds: Mapping[str, Mapping[int, float]]
) -> dict[str, Any]:
    found = {name: summary(measured) for name, measured in by_side.items()}
    base = fastest_plain(found)
    host = found[base].counted
    assert host is not None
    rates = {
        name: predicted_rate(found[name], measured, step_seconds[name], host.host_ms_per_pass / 1e3)
        for name, measured in by_side.items()
    }
    gains = over({name: measured.answers for name, measured in by_side.items()}, base)
    sides = {
        name: asdict(one)
        | {
            "over_plain": gains[name],
            "predicted_over_plain": rates[name] / rates[base],
            "over_prediction": gains[name] / (rates[name] / rates[base]),
        }
        for name, one in found.items()
    }
    texts = same_text([measured.answers for measured in by_side.values()])
    return {"plain_side": base, "same_text": texts, "sides": sides}


def fastest_plain(sides: Mapping[str, Summary]) -> str:
    """Return the side without a draft that has the most tokens a second."""
    plain = [name for name in sides if name.startswith(PLAIN)]
    return max(plain, key=lambda name: sides[name].tokens_per_second.median)


def predicted_rate(
    found: Summary, measured: Measured, costs: Mapping[int, float], host_seconds: float
) -> float:
    """Return tokens a second by step costs and acceptance.

    A pass of so many rows takes what it was measured to take alone, and the host as long as in
    plain decoding; growth that was waited for, and drafting in the target's own process, take what
    they took. What is left out is what target and draft cost each other beside that.
    """
    counters = total(one.target for one in measured.counts)
    extra = (counters.draft_wait_seconds + counters.drafting_seconds) / max(counters.passes, 1)
    seconds = interpolate(costs, found.rows_per_pass + 1) + host_seconds + extra
    return found.tokens_per_pass / seconds


def all_ratios(depths: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
    """Return each arrangement's gain by depth, over all modes, and the best one's."""
    ratios: dict[str, float] = {}
    for depth, modes in depths.items():
        drafted = {
            name
            for values in modes.values()
            for name in values["sides"]
            if not name.startswith(PLAIN)
        }
        gains = {name: mean_of(modes, name, "over_plain") for name in sorted(drafted)}
        for name, gain in gains.items():
            ratios[f"{name}_vs_plain_{depth}x"] = gain
            ratios[f"{name}_predicted_{depth}x"] = mean_of(modes, name, "predicted_over_plain")
        ratios[f"best_vs_plain_{depth}x"] = max(gains.values())
    return ratios


def mean_of(modes: Mapping[str, Any], side: str, figure: str) -> float:
    """Return the geometric mean of a side's figure over all modes."""
    return geometric_mean(values["sides"][side][figure] for values in modes.values())
