"""Measured step costs as tables and plots: a pass by rows, requests and context.

What was measured is the worker's to say; `profile` decides which of it is shown.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.progress_bar import ProgressBar
from rich.table import Table

from outrider.cli.terminal.plotting import picture
from outrider.cli.terminal.tables import columns

BAR_CELLS = 24


def table(title: str, costs: Mapping[str, Any]) -> Table:
    """Return the milliseconds: lines by rows, columns by requests and context."""
    found = list(_columns(costs))
    shown = columns(title, ["rows", *(_name(batch, context) for batch, context, _ in found)])
    for at, rows in enumerate(costs["rows"]):
        shown.add_row(
            str(rows),
            *(
                f"{1000 * seconds[at]:.2f} ms" if rows >= batch else "-"
                for batch, _, seconds in found
            ),
        )
    return shown


def passes(
    title: str, by: Mapping[str, Any], name: Callable[[str], str], *, bars: bool = False
) -> Table:
    """Return the milliseconds of a pass, and `bars`: lines by rows, columns by threads or ranks,
    which `name` names."""
    keys = sorted(by, key=int)
    seconds = {key: {int(n): s for n, s in by[key]["rows"].items()} for key in keys}
    longest = max((s for column in seconds.values() for s in column.values()), default=0.0)
    shown = columns(
        title, ["rows", *(head for key in keys for head in (name(key), "")[: 1 + bars])]
    )
    for n in sorted({n for column in seconds.values() for n in column}):
        cells = (_cells(seconds[key].get(n), longest)[: 1 + bars] for key in keys)
        shown.add_row(str(n), *itertools.chain.from_iterable(cells))
    return shown


def _cells(seconds: float | None, longest: float) -> tuple[str, str | ProgressBar]:
    if seconds is None:
        return "-", ""
    return f"{1000 * seconds:.2f} ms", ProgressBar(longest, seconds, width=BAR_CELLS)


def plot(title: str, costs: Mapping[str, Any], path: Path) -> None:
    """Write a picture: milliseconds of a pass by rows, a line for requests and context."""
    with picture(path, figsize=(7, 4.2)) as axis:
        for batch, context, seconds in _columns(costs):
            found = zip(costs["rows"], seconds, strict=True)
            points = [(n, 1000 * s) for n, s in found if n >= batch]
            axis.plot(*zip(*points, strict=True), marker="o", label=_name(batch, context))
        axis.set(title=title, xlabel="rows of one pass", ylabel="milliseconds")
        axis.legend()


def _columns(costs: Mapping[str, Any]) -> Iterator[tuple[int, int, list[float]]]:
    """Requests, context, and seconds by rows."""
    for batch, by_context in zip(costs["batches"], costs["seconds"], strict=True):
        for context, seconds in zip(costs["contexts"], by_context, strict=True):
            yield batch, context, seconds


def _name(batch: int, context: int) -> str:
    return f"{batch} request{'s' if batch > 1 else ''}, {context} tokens"
