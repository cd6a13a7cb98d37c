"""The report of `outrider doctor`: a table for people, or plain values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.doctor.checks import Check, Grade
from outrider.cli.doctor.findings import Findings

STYLES = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.STOPS: "bold red"}


def show(checks: Sequence[Check], console: Console) -> None:
    """Print a line for each check, and what they come to."""
    table = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=True)
    table.add_column(style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in checks:
        table.add_row(one.name, Text(one.grade, style=STYLES[one.grade]), Text(one.words))
    console.print(table)
    console.print(verdict(checks), highlight=False)


def verdict(checks: Sequence[Check]) -> str:
    """Return what the checks come to."""
    stopping = [one.name for one in checks if one.grade is Grade.STOPS]
    if stopping:
        return f"No service runs here before this is mended: {', '.join(stopping)}."
    command = " ".join(("outrider serve MODEL", *(one.options for one in checks if one.options)))
    return f"A service runs here: `{command}`."


def as_json(checks: Sequence[Check], found: Findings) -> dict[str, Any]:
    """Return checks and findings as plain values."""
    return {
        "runs": all(one.grade is not Grade.STOPS for one in checks),
        "checks": [{"name": c.name, "grade": str(c.grade), "words": c.words} for c in checks],
        "found": asdict(found),
    }
