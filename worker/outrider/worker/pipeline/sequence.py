"""Sequence: the state of one request in a pipelined target, its KV and the rows on their way.

Leaves text, tree and answer to `target.request`, which rows are sent to `segment_builder`, records
to `leader`, and committing to `walk`.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from outrider.contract.sources import SOURCES
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.messages import Submit, TokenLogprob
from outrider.worker.pipeline.records import Begin, Ints
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.speculation.acceptance import ALL_SOURCES, Calibration
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.target.request import Request
from outrider.worker.tree.mirror import DRAFT, Mirror
from outrider.worker.tree.walk import ROOT

COMMITTED = -1
"""Tree slot of a row that was committed when it left."""
SUSPECTED = 2
"""Groups that were lost while a sequence ran, without a commit of it, before it runs alone."""


class Sampled(NamedTuple):
    """The target's choice after a row."""

    token: int
    """Negative if there is none."""
    logprob: TokenLogprob | None = None
    """None where it was not asked for."""


@dataclass(slots=True, eq=False)
class SentRow:
    """A root's or a node's row."""

    number: int
    segment: int
    """Number of the segment that carries it."""
    slot: int = COMMITTED
    """Its tree slot."""
    source: int = DRAFT
    """Source that its node was sent for, in the order of `SOURCES`; of no meaning for a root."""
    sampled: Sampled | None = None
    """The target's choice after it; None until its result is back."""


class TreeSlots:
    """Slots of a block table; the lowest free one first, so that masks stay narrow."""

    def __init__(self, block_table: BlockTable) -> None:
        self.block_table = block_table
        self._free = list(range(block_table.room))

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    def take(self) -> int:
        """Take a tree slot; there must be a free one."""
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        """Free a tree slot, for records that are sent from now on."""
        heapq.heappush(self._free, slot)

    def in_pool(self, slots: list[int]) -> Ints:
        """Return the pool's numbers of tree slots."""
        return self.block_table.slots(np.array(slots, np.int32))


@dataclass(slots=True, eq=False)
class KVPlacement:
    """KV of a sequence, under one number of it on the stages."""

    number: int
    block_table: BlockTable
    """Blocks of committed positions: position p is its offset p."""
    slots: TreeSlots
    sent: int
    """Committed positions whose KV is in place once the stages have handled all that was sent."""
    computed: int
    """Committed positions whose rows every stage has computed: their results are back."""
    root: SentRow | None = None
    """The root's row; None until it has left."""
    rows: list[SentRow | None] = field(default_factory=list)
    """Rows by node of the mirror; None, or no entry, for those that have not left."""

    @property
    def decodes(self) -> bool:
        """True if a root is back since it was placed: what comes now is no prefill, first or
        again."""
        return self.computed > self.block_table.cached

    def row_of(self, node: int) -> SentRow | None:
        """Return the row of the root or of a node, if it has left."""
        if node == ROOT:
            return self.root
        return self.rows[node] if node < len(self.rows) else None

    def live_rows(self) -> Iterator[SentRow]:
        """Yield the rows that have left, whether they are back or not."""
        if self.root is not None:
            yield self.root
        yield from (row for row in self.rows if row is not None)


@dataclass(slots=True, eq=False)
class PipelinedSequence(Request):
    """One request of a pipelined target."""

    detached: "Callable[[PipelinedSequence], None]"
    """Tells the leader that nodes may have died with a session."""
    sources: int = ALL_SOURCES
    """Sources whose nodes get rows, a bit each in the order of `SOURCES`."""
    source_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Rows of nodes that have left, each time that it ran, in the same order."""
    counted_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Rows of nodes that are in records of its passes, in the same order."""
    traced_segments: int = 0
    """Segments with rows of it that are traced."""
    text: TextSearch | None = None
    """Search of its text; None where that is no source of draft tokens."""
    served: int = -1
    """Number of the segment in which its last root left; -1: none has."""
    losses: int = 0
    """Groups of stages that were lost while it ran, since its last commit."""
    placed: KVPlacement | None = None
    """KV of a sequence that runs; None while it waits."""

    @classmethod
    def of(
        cls,
        submit: Submit,
        calibration: Calibration,
        local_nodes: int,
        detached: "Callable[[PipelinedSequence], None]",
    ) -> Self:
        """Make the sequence of a request, without KV."""
        length = len(submit.prompt)
        tokens = np.zeros(length + submit.max_tokens + 1, np.int32)
        tokens[:length] = submit.prompt
        mirror = Mirror(length - 1, local_capacity=local_nodes, tokens=tokens)
        ends = np.array(submit.end_ids, np.int32)
        return cls(submit, tokens, length, mirror, calibration, ends, detached)

    def drop_session(self) -> None:
        """Forget the session, and the ids of its nodes; rows of nodes that die with it are dead."""
        Request.drop_session(self)
        self.detached(self)

    @property
    def needs_prefill(self) -> bool:
        """True if tokens of its prompt are still to be sent to the stages, as of one that waits
        for a place in their KV, or for stages that are gone."""
        return self.placed is None or self.unsent_prompt > 0

    @property
    def suspected(self) -> bool:
        """True if it may be why groups are lost: it runs alone until its next commit."""
        return self.losses >= SUSPECTED

    @property
    def kv(self) -> KVPlacement:
        """Placement of a sequence that runs."""
        assert self.placed is not None
        return self.placed

    @property
    def unsent_prompt(self) -> int:
        """Committed tokens before the root whose rows have not left."""
        return max(0, self.position - self.kv.sent)

    def new_rows(self, path: Sequence[SentRow | None]) -> SourceRows:
        """Return the rows of nodes that are in no record of a pass yet, and those on the `path`
        that is committed; the first token's, which is prefill's, does not count them."""
        rows = [now - then for now, then in zip(self.source_rows, self.counted_rows, strict=True)]
        if self.generated:
            self.counted_rows = list(self.source_rows)
        accepted = [0] * len(SOURCES)
        for row in path:
            if row is not None:
                accepted[row.source] += 1
        return SourceRows(rows, accepted, sum(rows))

    def begin(self) -> Begin:
        """Return the record that makes it known to the stages."""
        table, submit = self.kv.block_table, self.submit
        return Begin(
            sequence=self.kv.number,
            tokens=self.committed(),
            prompt=len(submit.prompt),
            sampling=submit.sampling,
            prefix_blocks=table.table[: table.published].copy(),
            tree_blocks=self.kv.slots.block_table.table.copy(),
            grammar=submit.grammar,
            logprobs=submit.logprobs,
        )
