"""Markdown tables of the reference pages, and how they show values.

Knows nothing of what is in them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

NOTE = "<!-- Written by `python -m tools.reference`; change the code it reads instead. -->"
REQUIRED = "required"


def shown(value: Any) -> str:
    """A default for people; parts and None show as nothing given."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if dataclasses.is_dataclass(value):
        return "all defaults"
    if isinstance(value, tuple) and value:
        return ", ".join(map(shown, value))
    return "empty" if value in ((), {}) else str(value)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = (head, *rows)
    escaped = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    top, *rest = (f"| {' | '.join(cells)} |" for cells in escaped)
    return "\n".join((top, f"|{'---|' * len(head)}", *rest))
