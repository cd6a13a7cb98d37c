"""Plot of `bench.swiftspec`: tokens a second by delay."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.record.report import headless_pyplot
from bench.swiftspec.answer import LOCK_STEP, MIRRORED
from bench.swiftspec.figures import Figures, of_mirrored

COLOURS = {"Colocated": "C7", "no reuse": "C1", "lock step": "C3", "mirrored": "C2"}


def plot_delays(depths: Mapping[int, Mapping[float, Mapping[str, Figures]]], path: Path) -> None:
    """Draw tokens a second by milliseconds each way; a panel for each depth.

    Dotted: what the mirrored tree is allowed to lose, and lock step if each step waits for a whole
    round trip more.
    """
    pyplot = headless_pyplot()

    size = (4.6 * len(depths), 3.8)
    figure, axes = pyplot.subplots(1, len(depths), figsize=size, squeeze=False)
    for axis, (depth, links) in zip(axes[0], depths.items(), strict=True):
        _panel(axis, links)
        axis.set_title(f"{depth} x the demo's depth", fontsize=10)
    axes[0][0].set_ylabel("tokens a second")
    axes[0][-1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis: Any, links: Mapping[float, Mapping[str, Figures]]) -> None:
    delays = list(links)
    places = range(len(delays))
    for name in links[0.0]:
        rates = [links[delay][name].tokens_per_second for delay in delays]
        axis.plot(places, rates, marker="o", color=COLOURS[name], label=name)
    for name, expected in ((MIRRORED, allowed_rate), (LOCK_STEP, lock_step_rate)):
        rates = [expected(links[0.0][name], links[delay][name], 2 * delay) for delay in delays]
        axis.plot(places, rates, linestyle=":", color=COLOURS[name])
    axis.set_xticks(places, [f"{delay:g}" for delay in delays])
    axis.set_xlabel("milliseconds added each way")
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)


def allowed_rate(near: Figures, far: Figures, round_trip: float) -> float:
    """Return the tokens a second that the mirrored tree must keep; `round_trip` in milliseconds."""
    bound = of_mirrored(near, far, round_trip).bound
    return near.tokens_per_second * max(0.0, 1 - bound)


def lock_step_rate(near: Figures, far: Figures, round_trip: float) -> float:
    """Return the tokens a second of steps that take the round trip longer, with the far run's
    tokens per pass."""
    return 1e3 * far.tokens_per_pass / (near.milliseconds_per_step + round_trip)
