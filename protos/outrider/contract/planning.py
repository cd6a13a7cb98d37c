"""Planners of a target: their names, the table of the static one, and why a step ran what it did.

Knows nothing of how they plan. What is wrong with a table is said in words that name its entry.
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

MAX_TABLE_ROWS = 32
"""Entries of a static table."""
MAX_BANDIT_TOKENS = 16
"""Most draft tokens of a request among the bandit's choices."""


class PlannerKind(enum.StrEnum):
    """What decides how many draft tokens the passes of a target verify.

    GOODPUT weighs expected tokens against measured time. BANDIT learns a number for each batch size
    by trying (Nightjar). STATIC takes it from a table. OFF decodes plainly.
    """

    GOODPUT = "goodput"
    BANDIT = "bandit"
    STATIC = "static"
    OFF = "off"


class Choice(enum.StrEnum):
    """Why a step that decoded ran the node rows that it did."""

    DISABLED = "disabled"
    """The policy forbids drafting."""
    OFF = "off"
    """The planner is `off`."""
    ROWS_PAY = "rows_pay"
    """goodput: its rows were expected to bring more than their time."""
    NO_ROW_PAYS = "no_row_pays"
    """goodput: no row was."""
    NO_NODES = "no_nodes"
    """No draft token was there."""
    SWITCHED_OFF = "switched_off"
    """goodput: drafting rests, because it gains too little."""
    PROBE = "probe"
    """goodput: drafting is tried again."""
    CHECK = "check"
    """goodput: plain decoding is measured."""
    EXPLORES = "explores"
    """bandit: a number of draft tokens is tried."""
    EXPLORES_NONE = "explores_none"
    """bandit: plain decoding is tried."""
    EXPLOITS = "exploits"
    """bandit: the number that has been best."""
    EXPLOITS_NONE = "exploits_none"
    """bandit: plain decoding has been best."""
    TABLE = "table"
    """static: the table's number."""
    TABLE_NONE = "table_none"
    """static: the table says 0."""
    MEMORY_LENT = "memory_lent"
    """all but off: the memory of a draft in its target's process is lent to the target's KV."""


CHOICES = tuple(Choice)
"""In the order of `Counters.planner_steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """Draft tokens of each request while so many run."""

    first: int
    """Fewest running requests, at least 1."""
    last: int = 0
    """Most running requests; 0: no bound, in the last entry alone."""
    draft_tokens: int
    """Of one request in one pass, if its draft has so many; 0: plain decoding."""


class Entry(Protocol):
    """An entry as any description of it has it."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int | None: ...


def table_problems(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield what is wrong with a table: it must name every number of requests from 1 on once.

    Each line begins with the place of an entry, as `[1].first`, or is of the whole table.
    """
    expected = 1
    entries = tuple(entries)
    if not entries:
        yield ": no entry: every number of running requests from 1 on needs one"
    for at, entry in enumerate(entries):
        ends = entry.last or 0
        if entry.first < 1:
            yield f"[{at}].first: {entry.first} is not allowed; it must be 1 or more"
        elif entry.first > expected:
            yield f"[{at}].first: {_numbers(expected, entry.first - 1)} running has no entry"
        elif entry.first < expected:
            yield f"[{at}].first: {entry.first} running has two entries; {expected} is next"
        if at == len(entries) - 1:
            if ends:
                yield f"[{at}].last: leave it out: more than {ends} running has no entry"
        elif ends == 0:
            yield f"[{at}].last: missing; only the last entry has no bound"
        elif ends < entry.first:
            yield f"[{at}].last: {ends} is less than first, {entry.first}"
        expected = max(expected, ends + 1)


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
