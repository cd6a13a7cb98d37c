"""Plot of real processes beside the simulation, a panel for each setting."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.flow.real import RealCell


def plot(cells: "Sequence[RealCell]", path: Path) -> None:
    """Draw tokens a second of each side: bars are real, with their range; dots are simulated."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(4, len(cells))
    lines = -(-len(cells) // columns)
    size = (3.6 * columns, 3.2 * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, squeeze=False)
    for axis, cell in zip(axes.flat, cells, strict=False):
        _panel(axis, cell)
    for line in axes:
        line[0].set_ylabel("tokens/s")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("real processes and shaped links", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis: Any, cell: "RealCell") -> None:
    for at, side in enumerate(cell.sides.values()):
        real = side.real
        spread = [[real.median - real.low], [real.high - real.median]]
        axis.bar(at, real.median, color=f"C{at}", alpha=0.7, yerr=spread, capsize=3)
    simulated = [side.simulated for side in cell.sides.values()]
    axis.plot(range(len(simulated)), simulated, "kD", markersize=5, label="simulated")
    axis.set_xticks(range(len(cell.sides)), list(cell.sides), rotation=30, ha="right", fontsize=8)
    axis.set_title(f"{cell.case}: {cell.stages} stages, {cell.links}", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
