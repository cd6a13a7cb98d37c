"""Expected seconds of a target's passes, by sequences, prefill rows, context and node rows.

Leaves measuring the step costs to `costs/step_timing`, how much slower passes are than those to
`target/selection`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outrider.worker.costs.step_costs import Seconds, StepCosts

SLOWDOWN_STEP = 0.005
"""Share by which a slowdown moves before step costs are scaled by it again: one multiplication in
numpy takes 20 µs after a pass (Zen 5)."""
CONTEXT_STEP = 32
"""Tokens of context over which step costs are taken as equal."""
MOST_KNOWN = 64
"""Kinds of passes whose costs are kept."""


class PlainCost(NamedTuple):
    """Seconds of a step without any draft, by the step costs."""

    step: float = 0.0
    """Seconds in which each of its sequences gets one token."""
    prefill: float = 0.0
    """Seconds that its prefill rows add."""


@dataclass(slots=True)
class PassCosts:
    """Seconds of passes with the same rows beside their node rows."""

    measured: Seconds
    """[node rows + 1] by the step costs."""
    plain: PlainCost
    slowdown: float = 0.0
    """Factor by which `scaled` was scaled."""
    scaled: Seconds = field(default_factory=lambda: np.zeros(1))
    """[node rows + 1] as they are expected now."""
    root: float = 0.0
    """First of the `scaled` seconds, those without node rows."""

    def at(self, slowdown: float) -> "PassCosts":
        """Scale them by a `slowdown` that has moved."""
        if abs(slowdown - self.slowdown) > SLOWDOWN_STEP * slowdown:
            self.slowdown, self.scaled = slowdown, slowdown * self.measured
            self.root = self.scaled.item(0)
        return self


@dataclass(slots=True)
class PassCostTable:
    """Costs of all kinds of passes of one target, made as they are asked for."""

    costs: StepCosts
    row_capacity: int
    """Rows that one pass can hold."""
    host_seconds: float = 0.0
    """Host time of a plain step, without its forward pass."""
    _known: dict[tuple[int, int, int, int], PassCosts] = field(default_factory=dict)

    def of(self, max_rows: int, sequences: int, prefill_rows: int, context: int) -> PassCosts:
        """Return the costs of a pass that decodes so many sequences beside prefill rows.

        `max_rows`: most node rows of each; `context`: tokens of a sequence, on average.
        """
        key = (max_rows, sequences, prefill_rows, context // CONTEXT_STEP)
        known = self._known.get(key)
        if known is None:
            beside = self._curve(max_rows, sequences, prefill_rows, context)
            alone = float(self._curve(max_rows, sequences, 0, context)[0])
            plain = PlainCost(alone + self.host_seconds, float(beside[0]) - alone)
            known = PassCosts(beside, plain)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def _curve(self, max_rows: int, sequences: int, prefill_rows: int, context: int) -> Seconds:
        """Return the seconds of such a pass by its node rows."""
        base = sequences + prefill_rows
        most = max(0, min(max_rows * sequences, self.row_capacity - base))
        return self.costs.curve(most, context, sequences, base)
