"""Tables as every command prints them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table


def figures(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a line for each figure: its name, and its value in words."""
    table = Table(box=SIMPLE_HEAD, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def columns(title: str, names: Iterable[str]) -> Table:
    """Return an empty table of numbers, by the names of its columns."""
    table = Table(box=SIMPLE_HEAD, header_style="dim", title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    return table


def flat(
    values: Mapping[str, Any], prefix: str = "", between: str = ", "
) -> Iterator[tuple[str, Any]]:
    """Yield each value below a mapping, named by its path."""
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}{between}", between)
        else:
            yield name, value
