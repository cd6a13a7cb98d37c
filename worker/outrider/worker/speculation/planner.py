"""How many rows of each sequence the next pass runs: the `goodput` planner.

Leaves estimates to `calibration`, order to `ranking`, waiting for growth to `patience`, and turning
drafting off to `switch`. Pure: costs and times come from the caller (speculation.md, Tree).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from outrider.worker.speculation.candidates import Candidates, Seconds, best_count, merge
from outrider.worker.tree.walk import Ints


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Rows of the next pass."""

    rows: Ints
    """int32[sequences] how many of each sequence's best candidates to run."""
    value: float
    """Expected tokens beyond the roots' own, less what the pass's time is worth in tokens."""


class Planner(Protocol):
    """What decides how many rows each sequence gets."""

    plain_rate: float
    """Tokens per second of plain decoding of as many sequences as run now, by the step costs."""

    @property
    def rate(self) -> float:
        """λ, in tokens per second."""

    def plan(self, ranked: Sequence[Candidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Rows for each sequence, at most `max_rows` each and len(costs) - 1 together."""

    def learn(self, tokens: int, seconds: float) -> None:
        """Learns one step: tokens committed over all sequences, and how long the step took."""


class Goodput:
    """Spends rows where expected tokens outweigh their measured time.

    `rate`, λ, is what the worker's time is worth: maximising the ratio of one step instead would
    overspend on poor steps. It is plain decoding's rate at the present number of sequences, times
    how much more the worker has written than that in the long run: eight sequences are worth far
    more a second than one, from the first step on (docs/decisions/0006). The long run is forgotten
    over `memory_seconds`, and starts as if plain decoding's rate had been seen for `prior_seconds`.
    """

    def __init__(
        self, plain_rate: float, prior_seconds: float = 0.5, memory_seconds: float = 20.0
    ) -> None:
        self.plain_rate = plain_rate
        """Tokens per second of plain decoding of as many sequences as run now."""
        self._written = self._plain = plain_rate * prior_seconds
        self._memory = memory_seconds

    @property
    def rate(self) -> float:
        """λ, in tokens per second."""
        return self.plain_rate * self._written / self._plain

    def plan(self, ranked: Sequence[Candidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Rows for each sequence, at most `max_rows` each and len(costs) - 1 together."""
        if len(ranked) == 1:
            reach = ranked[0].reach[:max_rows]
            k, value = best_count(reach, costs, self.rate)
            return RowPlan(np.array([k], np.int32), value)
        if not ranked:
            return RowPlan(np.empty(0, np.int32), -self.rate * float(costs[0]))
        start = np.zeros(len(ranked) + 1, np.int32)
        np.cumsum([len(r.reach) for r in ranked], out=start[1:])
        reach, owner = merge(
            np.concatenate([r.reach for r in ranked]),
            np.concatenate([r.depth for r in ranked]),
            start,
            len(costs) - 1,
            max_rows,
        )
        k, value = best_count(reach, costs, self.rate)
        return RowPlan(np.bincount(owner[:k], minlength=len(ranked)).astype(np.int32), value)

    def learn(self, tokens: int, seconds: float) -> None:
        """Learns one step: tokens committed over all sequences, and how long the step took."""
        fade = math.exp(-seconds / self._memory)
        self._written = self._written * fade + tokens
        self._plain = self._plain * fade + seconds * self.plain_rate
