"""Why a step of a target ran the node rows that it did.

Knows nothing of how they are planned.
"""

import enum


class Choice(enum.StrEnum):
    """Why a step that decoded ran the node rows that it did."""

    DISABLED = "disabled"
    """The policy wants plain decoding."""
    ROWS_PAY = "rows_pay"
    """Rows were expected to bring more than their time."""
    NO_ROW_PAYS = "no_row_pays"
    """No row was expected to bring more than its time."""
    NO_NODES = "no_nodes"
    """No draft token was there."""
    SWITCHED_OFF = "switched_off"
    """Drafting rests, because it gains too little."""
    PROBE = "probe"
    """Drafting is tried again."""
    CHECK = "check"
    """Plain decoding is measured."""
    MEMORY_LENT = "memory_lent"
    """The memory of a draft in its target's process is lent to the target's KV."""


CHOICES = tuple(Choice)
"""In the order of `Counters.planner_steps`."""
