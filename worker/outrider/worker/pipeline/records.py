"""Records of a pipelined target: what the leader sends down its stages, and what comes back.

One FIFO leads from the leader through all stages, one back from the last stage to the leader.
Plain data without policy; leaves the wire to a codec. The rules are those of
docs/concepts/pipelined-target.md.

A *slot* holds one token's KV, at the same number on every stage. Slots come in blocks of 64, as in
`kv.block_pool`. Committed position p of a sequence lies in slot p % 64 of some block of it; node
rows lie in the sequence's *tree slots*, those of its `tree_blocks`, counted through from 0.

*Look-ahead*: rows that wait in a queue are dropped as soon as a record that kills them is known.
Death is permanent, so a row that was queued before the record may go early; a row that was queued
after it may have got the same slot, and lives.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outrider.worker.sampling.params import SamplingParams

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

Visits = NDArray[np.float64]
"""Visits to the stages that a segment has passed, in order, float64[stages, 4]: the rows that each
computed, and the seconds of its own clock at which the segment came, its turn began and ended."""
ROWS, ARRIVED, BEGAN, ENDED = range(4)
"""Columns of `Visits`."""
NO_VISITS: Visits = np.zeros((0, 4))
UNKNOWN = math.nan
"""Seconds, where nobody looked at a clock."""

NOTHING_SAMPLED = -1
"""Token of a row for which none can be sampled: no logit is a number."""
FORM_BROKEN = -2
"""Token of a row whose sequence can follow the grammar of its response format no further."""


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """Leader → stages: a sequence starts."""

    sequence: int
    """Number that is never used again."""
    tokens: Ints
    """Tokens committed so far, int32[n >= 1]: the prompt, and what was computed of an answer."""
    prompt: int
    """Number of tokens of the prompt, which come first."""
    sampling: SamplingParams
    prefix_blocks: Ints
    """Blocks that hold the KV of the first 64 k tokens already, int32[k]."""
    tree_blocks: Ints
    """Blocks of the sequence's tree slots, int32[t >= 1]: tree slot i is slot i % 64 of block
    `tree_blocks[i // 64]`."""
    grammar: str = ""
    """Grammar of its response format, as llguidance reads it; empty: none."""
    logprobs: int | None = None
    """Likeliest tokens wanted beside each token's own log-probability; None: none at all."""

    @property
    def bytes(self) -> int:
        """Bytes of its larger parts."""
        return self.tokens.nbytes + len(self.grammar)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Leader → stages: n >= 0 rows that travel together, those of a sequence side by side.

    A row whose `ancestors` are all 0 is committed: its slot is that of its position, and it sees
    all positions up to its own. Any other is a node row: it sees the positions before its first
    ancestor, then its ancestors, then itself; a parent precedes its children. A segment that has
    lost all its rows travels on, for its number.
    """

    number: int
    """Counts the leader's segments."""
    rows: Longs
    """Row numbers, rising within a sequence, never used again, int64[n]."""
    sequence: Longs
    """Sequence of each row, int64[n]."""
    slots: Ints
    """Slots where each row's own KV is written, int32[n]."""
    tokens: Ints
    """Token of each row, int32[n]."""
    positions: Ints
    """Position of each row, counted from the sequence's first token, int32[n]."""
    ancestors: Bytes
    """Packed bit mask over the sequence's tree slots, the row's own among them, uint8[n, width]:
    tree slot i is bit i % 8, the lowest first, of byte i // 8; bits beyond `width` are 0."""
    sample: Bools
    """True for rows after which a token is to be sampled, bool[n]."""
    hidden: Floats | None = None
    """Output of the stage before, float32[n, hidden size]; None from the leader to the first."""
    visits: Visits = field(default_factory=NO_VISITS.copy)
    """Visits of the stages that it has passed."""
    arrived: float = UNKNOWN
    """Seconds of this party's clock at which it came; does not travel."""

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of its larger parts."""
        return self.ancestors.nbytes + (0 if self.hidden is None else self.hidden.nbytes)

    def keep(self, kept: Bools) -> Self:
        """Return the segment with those rows alone; `kept` bool[n]."""
        return replace(
            self,
            rows=self.rows[kept],
            sequence=self.sequence[kept],
            slots=self.slots[kept],
            tokens=self.tokens[kept],
            positions=self.positions[kept],
            ancestors=self.ancestors[kept],
            sample=self.sample[kept],
            hidden=None if self.hidden is None else self.hidden[kept],
        )

    def with_hidden(self, hidden: Floats | None) -> Self:
        """Return the segment with what a stage makes of it; float32[n, hidden size]."""
        return replace(self, hidden=hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Leader → stages: node rows of a sequence are committed, others die.

    All sources are read before any destination is written. Sources and freed slots hold nothing
    afterwards, and are used again only by records sent later.
    """

    sequence: int
    sources: Ints
    """Tree slots of rows that are committed, in the order of their positions, int32[m]."""
    destinations: Ints
    """Slots of the positions of committed rows, int32[m]; nothing lies there yet."""
    freed: Ints
    """Slots of rows that die, wherever they are on their way, int32[k]."""

    @property
    def bytes(self) -> int:
        """Bytes of its larger parts."""
        return self.sources.nbytes + self.destinations.nbytes + self.freed.nbytes


@dataclass(frozen=True, slots=True)
class End:
    """Leader → stages: a sequence is finished or cancelled; all its rows die."""

    sequence: int

    @property
    def bytes(self) -> int:
        """Bytes of its larger parts: it has none."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Last stage → leader: what was sampled after the rows of one segment, n of them.

    There is one for each segment, in order, also where nothing was sampled. That of a root whose
    grammar was not compiled yet comes later, in further results of its segment, which have no
    visits.
    """

    segment: int
    """Number of the segment."""
    rows: Longs
    """Row numbers, int64[n]."""
    tokens: Ints
    """Sampled tokens, int32[n], or `NOTHING_SAMPLED`, or `FORM_BROKEN`."""
    logprobs: Floats
    """Log-probabilities of the sampled tokens in the model's own distribution, float32[n]; NaN
    where none were asked for."""
    top_tokens: Ints
    """Likeliest tokens, best first, int32[n, k]; -1 behind those that were asked for."""
    top_logprobs: Floats
    """Log-probabilities of the likeliest tokens, float32[n, k]; -inf behind those asked for."""
    visits: Visits = field(default_factory=NO_VISITS.copy)
    """Visits of all stages."""
    arrived: float = UNKNOWN
    """Seconds of the leader's clock at which they came; does not travel."""


def visited(passed: Segment, made: "Segment | Results", began: float, ended: float) -> Any:
    """Return what a stage made of a segment, with its visit; the type is that of `made`."""
    arrived = began if math.isnan(passed.arrived) else passed.arrived
    visit = [[passed.count, arrived, began, ended]]
    return replace(made, visits=np.concatenate([passed.visits, visit]))


Record = Begin | Segment | Move | End
"""What the leader sends, in one FIFO."""


@dataclass(slots=True)
class RejectedRows:
    """Rows of one sequence that die, on a way back through the records before the killing one."""

    sequence: int
    slots: set[int] | None
    """Slots of the rows; None: all of the sequence."""

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
            dying = RejectedRows(killer.sequence, set(freed.tolist()))
        case End():
            dying = RejectedRows(killer.sequence, None)
        case _:
            return
    for queue in queues:
        for at in range(len(queue) - 1, -1, -1):
            queue[at] = dying.drop_from(queue[at])
