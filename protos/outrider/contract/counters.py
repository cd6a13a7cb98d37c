"""Counters and states of a worker: what its engine counts, its servers report and a client reads.

Fields are those of the message `Counters` of control.proto. Metrics that show one of them name it
in `outrider.contract.metrics`.
"""

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SOURCES

GROWTH_LATENCY_BOUNDS = tuple(float(f"{10 ** (n / 8 - 4):.2g}") for n in range(33))
"""Upper bounds of the buckets of `Counters.growth_latencies`, in seconds: 0.1 ms to 1 s, eight in
a decade; one more bucket lies beyond."""

ENOUGH_GUESSES, SELDOM = 128, 0.05
"""First draft tokens after which a draft is judged, and the share of them that is seldom: the
demo's draft is right in half of its guesses, one whose weights have nothing to do with the target
in next to none."""


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


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Counters:
    """What has happened since the worker started."""

    requests_finished: int = 0
    requests_cancelled: int = 0
    tokens: int = 0
    """Committed tokens."""
    passes: int = 0
    """Target: verify passes. Draft: growth passes."""
    draft_rows: int = 0
    """Target: node rows verified. Draft: rows run, expansions and suffix tokens together."""
    accepted_rows: int = 0
    plain_seconds: float = 0.0
    """Seconds that plain decoding would have taken."""
    spent_seconds: float = 0.0
    draft_wait_seconds: float = 0.0
    """Seconds that the target waited for growth."""
    growth_dropped: int = 0
    """Nodes that arrived dead."""
    kv_slots_used: int = 0
    drafting_seconds: float = 0.0
    """Targets that draft in their own process: seconds spent in draft passes."""
    preemptions: int = 0
    """Requests that gave their KV back for others and computed it again."""
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Tokens of prompts whose KV was kept from earlier requests."""
    kv_slots: int = 0
    """Slots of KV in all."""
    requests_at_length: int = 0
    """Finished requests that ended at their most tokens."""
    requests_failed: int = 0
    """Finished requests that the engine could not go on with."""
    requests_expired: int = 0
    """Cancelled requests that waited for their first step for too long."""
    generation_tokens: int = 0
    """Tokens of answers, the first one of each included."""
    drafted_passes: int = 0
    """Verify passes over one node row or more."""
    first_guesses: int = 0
    """Verify passes whose rows held the draft's likeliest next token."""
    first_hits: int = 0
    """Verify passes whose rows held the draft's likeliest next token, and in which it was right."""
    passes_by_accepted: tuple[int, ...] = ()
    """Verify passes by how many node rows each accepted, from 0."""
    planner_steps: tuple[int, ...] = ()
    """Steps that decoded by why they ran the node rows that they did, in the order of
    `CHOICES`."""
    steps: int = 0
    """Targets: passes of the engine, each over rows of several sequences."""
    step_rows: int = 0
    """Rows of all of them: roots, nodes and tokens of prompts."""
    blind_passes: int = 0
    """Verify passes for which no node was there, although a draft was to grow some."""
    resting_passes: int = 0
    """Verify passes without a draft because the switch was off."""
    host_seconds: float = 0.0
    """Seconds between passes of the engine in which it did not wait."""
    growth_latencies: tuple[int, ...] = ()
    """Commits by the time to the first growth that knew them, in `GROWTH_LATENCY_BOUNDS`."""
    growth_latency_seconds: float = 0.0
    """Sum of those times."""
    source_rows: tuple[int, ...] = ()
    """Node rows verified, by what proposed them, in the order of `sources.SOURCES`; of several
    proposers the prediction counts, else the draft."""
    source_accepted: tuple[int, ...] = ()
    """Accepted node rows, by what proposed them, in the order of `sources.SOURCES`."""
    local_plain_seconds: float = 0.0
    """Part of `plain_seconds` that tokens from local sources account for, not the draft's."""
    local_spent_seconds: float = 0.0
    """Part of `spent_seconds` that rows from local sources took, not the draft's."""

    @property
    def accepted_by_depth(self) -> tuple[int, ...]:
        """Accepted node rows by depth, from 1."""
        return accepted_by_depth(self.passes_by_accepted)


def new_counters() -> Counters:
    """Return the counters of an engine that has run nothing."""
    return Counters(
        passes_by_accepted=(0,) * (MAX_DEPTH + 1),
        planner_steps=(0,) * len(CHOICES),
        growth_latencies=(0,) * (len(GROWTH_LATENCY_BOUNDS) + 1),
        source_rows=(0,) * len(SOURCES),
        source_accepted=(0,) * len(SOURCES),
    )


def accepted_by_depth(passes_by_accepted: Sequence[int]) -> tuple[int, ...]:
    """Count accepted node rows by depth, from 1: a pass that accepts n rows has one at each to n.

    `passes_by_accepted[n]`: passes that accepted n rows.
    """
    deepest_first = itertools.accumulate(reversed(passes_by_accepted[1:]))
    return tuple(deepest_first)[::-1]


def seldom_right(first_guesses: int, first_hits: int) -> bool:
    """Return whether a draft guesses so badly that it is of no use to its target."""
    return first_guesses >= ENOUGH_GUESSES and first_hits < SELDOM * first_guesses
