"""Look-ahead: rows that wait in a queue are dropped as soon as a record that kills them is known.

Death is permanent, so a row that was queued before the record may go early; a row that was queued
after it may have got the same slot, and lives.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.worker.pipeline.records import End, Move, Record, Segment


@dataclass(slots=True)
class Dying:
    """Rows of one sequence that die, on a way back through the records before the killing one."""

    sequence: int
    slots: set[int] | None
    """Of the rows; None: all of the sequence."""

    def drop_from(self, record: Any) -> Any:
        """Return a record without the rows that die; it is the next one further back."""
        if isinstance(record, Segment):
            return self._without_dead(record)
        if isinstance(record, Move) and record.sequence == self.sequence and self.slots:
            # whoever had these slots before it was committed, or is dead already
            self.slots.difference_update(record.sources.tolist(), record.freed.tolist())
        return record

    def _without_dead(self, segment: Segment) -> Segment:
        dead = segment.sequence == self.sequence
        if self.slots is not None:
            dead &= np.isin(segment.slots, list(self.slots))
        return segment.keep(~dead) if dead.any() else segment


def drop_killed(killer: Record, *queues: deque[Any]) -> None:
    """Drop, in place, the rows that a record kills from the records sent before it.

    `queues` hold those records, the queue with the latest first; each has its oldest first.
    """
    match killer:
        case Move(freed=freed) if len(freed):
            dying = Dying(killer.sequence, set(freed.tolist()))
        case End():
            dying = Dying(killer.sequence, None)
        case _:
            return
    for queue in queues:
        for at in range(len(queue) - 1, -1, -1):
            queue[at] = dying.drop_from(queue[at])
