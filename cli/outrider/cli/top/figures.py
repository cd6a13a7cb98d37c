"""Rates and ratios between two samples of a worker, or of several, from counters.

Pure. Counters of several workers are added up before anything is divided.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, fields

from outrider.cli.top.poll import Look
from outrider.client import Counters, State

NOTHING = Counters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFigures:
    """Of one or several workers; None where there was nothing to divide by."""

    tokens_per_second: float | None
    """Targets: tokens of answers. Drafts: tokens that targets committed."""
    prompt_tokens_per_second: float | None
    passes_per_second: float | None
    tokens_per_pass: float | None
    """Targets: tokens that verify passes committed, by passes."""
    rows_per_pass: float | None
    """Targets: rows of one pass of the engine. Drafts: rows of one draft pass."""
    accepted_share: float | None
    """Share of verified node rows that were accepted."""
    hit_rate: float | None
    """Share of first draft tokens that were accepted."""
    gain: float | None
    """Seconds that plain decoding would have taken, by seconds taken."""
    waiting_share: float | None
    """Share of the time of passes that went into waiting for growth."""
    prefix_hit_rate: float | None
    """Share of prompt tokens whose KV was there."""
    accepted_by_depth: tuple[float, ...]
    """Node rows accepted at each depth from 1, by passes over node rows."""
    accepted_by_source: tuple[float, ...]
    """Of the node rows accepted, those of each source, in the order of `SOURCES`."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """Difference of counters over a time."""

    counters: Counters
    seconds: float | None
    """None: since the worker started, whenever that was."""
    drafts: bool = False
    """Whether they are a draft's."""

    def figures(self) -> TopFigures:
        """Compute rates and ratios."""
        c, seconds = self.counters, self.seconds
        steps = c.passes if self.drafts else c.steps
        rows = c.draft_rows if self.drafts else c.step_rows
        return TopFigures(
            tokens_per_second=_by(c.tokens if self.drafts else c.generation_tokens, seconds),
            prompt_tokens_per_second=_by(c.prompt_tokens, seconds),
            passes_per_second=_by(steps, seconds),
            tokens_per_pass=None if self.drafts else _by(c.tokens, c.passes),
            rows_per_pass=_by(rows, steps),
            accepted_share=None if self.drafts else _by(c.accepted_rows, c.draft_rows),
            hit_rate=_by(c.first_hits, c.first_guesses),
            gain=_by(c.plain_seconds, c.spent_seconds),
            waiting_share=_by(c.draft_wait_seconds, c.spent_seconds),
            prefix_hit_rate=_by(c.cached_prompt_tokens, c.prompt_tokens),
            accepted_by_depth=_shares(c),
            accepted_by_source=_by_source(c),
        )


def between(before: Look | None, after: Look) -> StateChange | None:
    """Return the change of a worker between two samples; None if it restarted or did not answer."""
    if before is None or before.state is None or after.state is None:
        return None
    if before.state.incarnation != after.state.incarnation:
        return None
    counted = difference(before.state.counters, after.state.counters)
    return StateChange(counted, after.at - before.at, after.state.role == "draft")


def since_start(state: State) -> StateChange:
    """Return the change since a worker started."""
    return StateChange(state.counters, None, state.role == "draft")


def together(changes: Iterable[StateChange]) -> StateChange | None:
    """Of several workers of one role; None if there is none."""
    each = tuple(changes)
    if not each:
        return None
    counters = NOTHING
    for change in each:
        counters = _each(counters, change.counters, 1)
    seconds = [change.seconds for change in each if change.seconds is not None]
    return StateChange(counters, max(seconds, default=None), each[0].drafts)


def difference(before: Counters, after: Counters) -> Counters:
    """Subtract field by field."""
    return _each(after, before, -1)


def _each(one: Counters, other: Counters, sign: int) -> Counters:
    """`one` + `sign` * `other`, field by field and depth by depth."""

    def added(name: str) -> object:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, tuple):
            return tuple(x + sign * y for x, y in itertools.zip_longest(a, b, fillvalue=0))
        return a + sign * b

    return Counters(**{field.name: added(field.name) for field in fields(Counters)})  # type: ignore[arg-type]


def _shares(counters: Counters) -> tuple[float, ...]:
    """Accepted rows by depth, for each pass over node rows; as deep as any was accepted."""
    if counters.drafted_passes <= 0:
        return ()
    return tuple(n / counters.drafted_passes for n in counters.accepted_by_depth if n > 0)


def _by_source(counters: Counters) -> tuple[float, ...]:
    """Share of each source in the node rows accepted; empty where none was."""
    total = sum(counters.source_accepted)
    return tuple(count / total for count in counters.source_accepted) if total > 0 else ()


def _by(amount: float, base: float | None) -> float | None:
    return amount / base if base else None
