"""Check that a picture can be plotted, made before the work whose figures it shows.

Needs matplotlib, which is not among the command line's own requirements. Plotting is left to those
who know the figures.
"""

import importlib.util
from pathlib import Path

from outrider.cli.failures import BadInput
from outrider.contract.extras import missing_extra

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
