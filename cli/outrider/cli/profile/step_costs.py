"""Measured step costs as tables and plots: a pass by rows, requests and context.

What was measured is the worker's to say; `profile` decides which of it is shown.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table


def table(title: str, costs: Mapping[str, Any]) -> Table:
    """Return the milliseconds: lines by rows, columns by requests and context."""
    shown = Table(box=SIMPLE_HEAD, header_style="dim", title=title, title_justify="left")
    shown.add_column("rows", justify="right")
    columns = list(_columns(costs))
    for batch, context, _ in columns:
        shown.add_column(_name(batch, context), justify="right")
    for at, rows in enumerate(costs["rows"]):
        shown.add_row(
            str(rows),
            *(
                f"{1000 * seconds[at]:.2f} ms" if rows >= batch else "-"
                for batch, _, seconds in columns
            ),
        )
    return shown


def plot(title: str, costs: Mapping[str, Any], path: Path) -> None:
    """Write a picture: milliseconds of a pass by rows, a line for requests and context."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for batch, context, seconds in _columns(costs):
        points = [(n, 1000 * s) for n, s in zip(costs["rows"], seconds, strict=True) if n >= batch]
        axis.plot(*zip(*points, strict=True), marker="o", label=_name(batch, context))
    axis.set(title=title, xlabel="rows of one pass", ylabel="milliseconds")
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _columns(costs: Mapping[str, Any]) -> Iterator[tuple[int, int, list[float]]]:
    """Requests, context, and seconds by rows."""
    for batch, by_context in zip(costs["batches"], costs["seconds"], strict=True):
        for context, seconds in zip(costs["contexts"], by_context, strict=True):
            yield batch, context, seconds


def _name(batch: int, context: int) -> str:
    return f"{batch} request{'s' if batch > 1 else ''}, {context} tokens"
