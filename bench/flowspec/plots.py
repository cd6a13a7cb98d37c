"""Plots of `bench.flowspec`: bars of the sides in the paper's setting, and the sweep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.flowspec.sides import Cell
from bench.record.report import headless_pyplot

NAMES = {
    "plain": "plain",
    "rounds": "rounds",
    "layer_a_step": "layer a step",
    "pruned": "pruned",
    "flowspec": "FlowSpec",
    "continuous": "continuous (ours)",
}


def plot(cells: Sequence[Cell], paper: Mapping[str, Cell], path: Path) -> None:
    """Draw bars for each of the paper's settings, and lines for each setting of the sweep."""
    pyplot = headless_pyplot()

    settings = list(dict.fromkeys(one.setting for one in cells))
    columns = max(len(paper), len(settings), 1)
    figure, axes = pyplot.subplots(2, columns, figsize=(4.2 * columns, 7.5), squeeze=False)
    for axis, cell in zip(axes[0], paper.values(), strict=False):
        _bars(axis, cell)
    for axis in axes[0][len(paper) :]:
        axis.axis("off")
    for axis, setting in zip(axes[1], settings, strict=False):
        _lines(axis, [one for one in cells if one.setting == setting])
    axes[1][0].set_ylabel("ours over rounds, each at its best")
    axes[1][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bars(axis: Any, cell: Cell) -> None:
    """Draw tokens a second: the paper's sizes filled, each side's best outlined."""
    for at, side in enumerate(NAMES):
        best = cell.best[side].tokens_per_second
        own = cell.paper.get(side, cell.best[side]).tokens_per_second
        axis.bar(at, own, color=f"C{at}")
        axis.bar(at, best, fill=False, edgecolor="black")
        axis.text(at, best, f"{best:.3g}", ha="center", va="bottom", fontsize=8)
    axis.set_xticks(range(len(NAMES)), list(NAMES.values()), rotation=30, ha="right", fontsize=8)
    axis.set_title(f"{cell.setting}, {cell.stages} stages, {cell.links}", fontsize=9)
    axis.set_ylabel("tokens/s; outline: best sizes")
    axis.spines[["top", "right"]].set_visible(False)


def _lines(axis: Any, cells: Sequence[Cell]) -> None:
    for links in dict.fromkeys(one.links for one in cells):
        own = [one for one in cells if one.links == links]
        axis.plot(
            [one.stages for one in own],
            [one.ratio("continuous", "rounds") for one in own],
            marker=".",
            label=links,
        )
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_xlabel("stages")
    axis.set_title(cells[0].setting, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
