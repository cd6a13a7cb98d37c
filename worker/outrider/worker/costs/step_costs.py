"""Step costs: seconds of a forward pass by its rows, its sequences and their context.

Arithmetic only. Leaves measuring to `step_timing`, and planning to the planners.
"""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Measured seconds of passes; straight lines between, beyond, and not below."""

    rows: tuple[int, ...]
    """Row counts measured, rising."""
    contexts: tuple[int, int]
    """Tokens of context measured, rising."""
    measured: Seconds
    """[batches, contexts, rows] never falling along any axis."""
    batches: tuple[int, ...] = (1,)
    """Numbers of sequences that the rows were shared out over, rising from 1."""
    prefill_share: float = 1.0
    """Share of a further row's seconds that a further row without logits takes."""

    @classmethod
    def smoothed(
        cls,
        rows: tuple[int, ...],
        contexts: tuple[int, int],
        raw: Seconds,
        batches: tuple[int, ...] = (1,),
        prefill_share: float = 1.0,
    ) -> Self:
        """Smooth noisy measurements: more of anything never costs less.

        Noise only adds: a point above one with more rows was disturbed, and takes that one's value.
        """
        measured = np.empty_like(raw)
        least, least_more = np.zeros_like(raw[0])
        for batch, (near, far) in enumerate(raw):
            least = never_falling(np.maximum(near, least))
            least_more = never_falling(np.maximum(far - least, least_more))
            measured[batch] = least, least + least_more
        return cls(rows, contexts, measured, batches, prefill_share)

    def seconds(self, rows: int, context: int, sequences: int = 1) -> float:
        """Return seconds of a pass of `rows` rows, of so many sequences of `context` tokens."""
        return float(self._at(np.array([rows], np.float64), context, sequences)[0])

    def curve(self, most: int, context: int, sequences: int = 1, base: int = 1) -> Seconds:
        """Return float64[most + 1]: seconds of passes of `base` … `base + most` rows in all."""
        return self._at(np.arange(float(base), base + most + 1.0), context, sequences)

    def prefill_curve(self, most: int, context: int, sequences: int) -> Seconds:
        """Return float64[most + 1]: seconds of passes of 0 … `most` prefill rows, without logits.

        `sequences` decode in the same pass, one row each; there is one at least.
        """
        seconds = self.curve(most, context, sequences, sequences)
        result: Seconds = seconds[0] + self.prefill_share * (seconds - seconds[0])
        return result

    def table(self) -> dict[int, float]:
        """Return the reported seconds by rows, of one sequence at the shorter context."""
        return {n: float(x) for n, x in zip(self.rows, self.measured[0, 0], strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `from_json` takes them."""
        return {
            "rows": self.rows,
            "contexts": self.contexts,
            "batches": self.batches,
            "seconds": self.measured.tolist(),
            "prefill_share": self.prefill_share,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """Restore what `to_json` returned; raises `ValueError` or `KeyError` for anything else."""
        rows, (near, far), batches = tuple(facts["rows"]), facts["contexts"], facts["batches"]
        measured = np.array(facts["seconds"], np.float64)
        share = float(facts["prefill_share"])
        shape = (len(batches), 2, len(rows))
        sound = measured.shape == shape and (measured > 0).all() and 0 < share <= 1
        if not sound or not near < far:
            raise ValueError(f"not step costs: {facts!r}")
        return cls(rows, (int(near), int(far)), measured, tuple(batches), share)

    def _at(self, rows: Seconds, context: int, sequences: int) -> Seconds:
        """Interpolate between the batches around `sequences`; extrapolate beyond the last."""
        if len(self.batches) == 1 or sequences == 1:
            return self._of_batch(0, rows, context)
        at = min(bisect.bisect_right(self.batches, sequences), len(self.batches) - 1)
        lower, upper = self.batches[at - 1], self.batches[at]
        share = (sequences - lower) / (upper - lower)
        below, above = (self._of_batch(i, rows, context) for i in (at - 1, at))
        return below + share * (above - below)

    def _of_batch(self, batch: int, rows: Seconds, context: int) -> Seconds:
        near = self.measured[:, 0]
        more = self.measured[:, 1] - near
        share = (context - self.contexts[0]) / (self.contexts[1] - self.contexts[0])
        return self._along(near, batch, rows) + max(share, 0.0) * self._along(more, batch, rows)

    def _along(self, table: Seconds, batch: int, rows: Seconds) -> Seconds:
        """Add what more sequences cost to one sequence's line."""
        known = np.array(self.rows)
        more: Seconds = np.interp(rows, known, table[batch] - table[0])
        return _line(rows, known, table[0]) + more


def never_falling(values: Seconds) -> Seconds:
    """Return each value, or the least of those after it if that is less."""
    return np.minimum.accumulate(values[::-1])[::-1]


def _line(x: Seconds, known: Seconds, values: Seconds) -> Seconds:
    """Interpolate; past the last known point, by its slope from half as many rows."""
    inside: Seconds = np.interp(x, known, values)
    if len(known) == 1:
        return inside
    half = max(0, int(np.searchsorted(known, known[-1] / 2, side="right")) - 1)
    slope = (values[-1] - values[half]) / (known[-1] - known[half])
    inside += slope * np.maximum(0.0, x - known[-1])
    return inside
