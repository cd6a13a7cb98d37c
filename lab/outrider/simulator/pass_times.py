"""Seconds of simulated passes, by step costs that were measured or written down.

Leaves what is in a pass to the schedulers, and the tables to `description`.
"""

from dataclasses import dataclass, field

from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.target.batch import TargetBatch

CONTEXT_STEP = 32
"""Tokens of context over which a pass takes as long."""
MAX_KNOWN = 1 << 16
"""Passes whose seconds are kept."""
LEAST_SHARE = 0.1
"""Share of a pass's cost that it takes however much less a description says."""


@dataclass(slots=True)
class PassTimes:
    """Passes of one model on its device, and the host time between them."""

    costs: StepCosts
    host_seconds: float = 0.0
    """Host seconds between two passes, whatever is in them."""
    sequence_seconds: float = 0.0
    """Further host seconds for each sequence of a pass."""
    row_seconds: float = 0.0
    """Seconds of a pass for each row with output: sampling, or picking children."""
    more_seconds: float = 0.0
    """Seconds of a pass beyond step costs."""
    more_sequence_seconds: float = 0.0
    """Seconds of a pass beyond step costs for each sequence."""
    _known: dict[tuple[int, int, int, int], float] = field(default_factory=dict)

    def target(self, step: TargetBatch) -> float:
        """Return the seconds of a target's pass."""
        rows, prefill = step.rows.count, step.prefill_rows
        context = int(step.rows.positions.sum()) // rows
        seconds = self._seconds(rows - prefill, prefill, step.decoding_count, context)
        return self._in_service(seconds, len(step.parts), len(step.rows.outputs))

    def draft(self, step: DraftBatch) -> float:
        """Return the seconds of a draft's pass."""
        rows = step.rows.count
        context = int(step.rows.positions.sum()) // rows
        seconds = self._seconds(rows, 0, len(step.parts), context)
        return self._in_service(seconds, len(step.parts), len(step.rows.outputs))

    def host(self, sequences: int) -> float:
        """Return the host time beside a pass of so many sequences."""
        return self.host_seconds + sequences * self.sequence_seconds

    def _in_service(self, seconds: float, sequences: int, outputs: int) -> float:
        """Return what a pass takes in a service that takes so long alone."""
        more = self.more_seconds + sequences * self.more_sequence_seconds
        return max(LEAST_SHARE * seconds, seconds + more) + self.row_seconds * outputs

    def _seconds(self, rows: int, prefill: int, sequences: int, context: int) -> float:
        """Look up a pass of `rows` with logits and `prefill` rows without; kept once computed."""
        key = (rows, prefill, sequences, context // CONTEXT_STEP)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = self._computed(rows, prefill, sequences, context)
        return known

    def _computed(self, rows: int, prefill: int, sequences: int, context: int) -> float:
        if sequences == 0:
            return float(self.costs.prefill_curve(prefill - 1, context, 1)[-1])
        seconds = self.costs.seconds(rows, context, sequences)
        if prefill == 0:
            return seconds
        curve = self.costs.prefill_curve(prefill, context, sequences)
        return seconds + float(curve[-1] - curve[0])
