"""Pictures, and the check that they can be plotted, made before the work whose figures they show.

Needs matplotlib, which is not among the command line's own requirements. What is plotted is left to
those who know the figures.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outrider.cli.failures import BadInput
from outrider.contract.version import missing_extra

SUFFIXES = (".png", ".svg", ".pdf")
PACKAGE, EXTRA = "matplotlib", "bench"


def is_possible() -> bool:
    """True if what plots is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def ensure_possible(path: Path) -> None:
    """Raise `BadInput` before the run rather than after it."""
    if not is_possible():
        raise BadInput(f"--plot {path}: needs matplotlib; {missing_extra(EXTRA)}")
    if path.suffix not in SUFFIXES:
        raise BadInput(f"--plot {path}: allowed: a file that ends in .png, .svg or .pdf")


@contextlib.contextmanager
def picture(path: Path, rows: int = 1, **options: Any) -> Iterator[Any]:
    """Plot on the axis, or on the axes of several rows, that this yields; write it at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, 1, layout="constrained", **options)
    yield axes
    for axis in figure.axes:
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
