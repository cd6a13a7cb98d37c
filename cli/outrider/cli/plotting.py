"""Check that a picture can be plotted, made before the work whose figures it shows.

Needs matplotlib, which is not among the command line's own requirements. Plotting is left to those
who know the figures.
"""

import importlib.util
from pathlib import Path

from outrider.cli.failures import BadInput


def ensure_possible(path: Path) -> None:
    """Raise `BadInput` before the run rather than after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise BadInput(f"--plot {path}: needs matplotlib; install outrider[bench]")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise BadInput(f"--plot {path}: allowed: a file that ends in .png, .svg or .pdf")
