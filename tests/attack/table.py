"""The table of an attack, and its figures as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.cli.load.exchange import Status
from outrider.cli.load.summary import summary
from tests.attack.record import Kind, Record
from tests.attack.rooms import Figures

ROWS = {
    "whole texts": "whole",
    "prefixes": "prefixes",
    "given up": "given_up",
    "cut by a kill of their target": "cut",
    "refused": "refused",
    "faults": "faults",
    "odd attacks": "odd",
}
"""Heads of rows, and the names of their figures; the kinds of problems follow."""


def result(
    seen: Record,
    compared: Mapping[str, int],
    before: Mapping[str, Figures],
    after: Mapping[str, Figures],
) -> dict[str, Any]:
    """Return the figures of one room."""
    figures = summary(seen.streams)
    return {
        "room": seen.name,
        **compared,
        "given_up": figures[Status.INTERRUPTED],
        "cut": len(seen.cut()),
        "refused": figures[Status.REJECTED],
        "faults": seen.faults.total(),
        "odd": seen.odd.total(),
        "problems": {kind: sum(one.kind is kind for one in seen.problems) for kind in Kind},
        "of_faults": dict(sorted(seen.faults.items())),
        "of_odd": dict(sorted(seen.odd.items())),
        "tokens": figures["completion_tokens"],
        "draft_rows": figures["draft_rows"],
        "accepted_rows": figures["accepted_rows"],
        "held_before": {name: one._asdict() for name, one in before.items()},
        "held_after": {name: one._asdict() for name, one in after.items()},
        "words": [words for _, words in seen.problems],
    }


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the table, with a column for each room."""
    table, columns = Table(box=SIMPLE_HEAD), (*results, total(results))
    table.add_column("room", no_wrap=True)
    for one in columns:
        table.add_column(one["room"], justify="right")
    for head, name in ROWS.items():
        table.add_row(head, *(str(one[name]) for one in columns))
    for kind in Kind:
        table.add_row(kind, *(str(one["problems"][kind]) for one in columns))
    Console().print(table)


def total(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of all rooms."""
    sums = {name: sum(one[name] for one in results) for name in ROWS.values()}
    problems = {kind: sum(one["problems"][kind] for one in results) for kind in Kind}
    return {"room": "all", **sums, "problems": problems}
