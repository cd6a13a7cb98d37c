"""Rows of the leader's next segment: the best of all sequences, and prompts beside them.

Leaves KV blocks, row numbers and the window of segments to `leader`.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outrider.worker.pipeline.records import Bytes, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.sequence import COMMITTED, PipelinedSequence, SentRow
from outrider.worker.speculation.planner import sorted_candidates
from outrider.worker.tree import mirror_table
from outrider.worker.tree.mirror import DRAFT
from outrider.worker.tree.walk import ROOT

ROOT_REACH = 1.0


class RowCandidate(NamedTuple):
    """A root or node that could have a row; they sort best first, parents before children."""

    unlikeliness: float
    """Minus the probability that a walk reaches it."""
    depth: int
    served: int
    """Segment in which the last root of its sequence left: with fewer rows than roots they take
    turns."""
    share: int
    """Place of its sequence among the shares."""
    order: int
    """Among the candidates of its sequence."""
    node: int


@dataclass(slots=True)
class SegmentShare:
    """Rows of one sequence in a segment."""

    sequence: PipelinedSequence
    prompt_rows: int = 0
    """Committed tokens before the root."""
    nodes: list[int] = field(default_factory=list)
    """`ROOT` or nodes of the mirror, parents first."""

    @property
    def decodes(self) -> bool:
        """True if all tokens before the root have left by then."""
        return self.prompt_rows == self.sequence.unsent_prompt

    def has(self, node: int) -> bool:
        """True if the row of the root or of a node has left, or leaves now."""
        return self.sequence.kv.row_of(node) is not None or node in self.nodes

    @property
    def count(self) -> int:
        """Rows."""
        return self.prompt_rows + len(self.nodes)


PromptShares = Callable[[Sequence[PipelinedSequence], int], list[int]]
"""Shares out rows to prompts, so many together: returns those of each sequence, at most
`unsent_prompt`; the sequences come by seniority."""


def first_come(sequences: Sequence[PipelinedSequence], most: int) -> list[int]:
    """Give the rows to the prompts that came first."""
    counts = []
    for sequence in sequences:
        counts.append(min(sequence.unsent_prompt, most))
        most -= counts[-1]
    return counts


def choose(
    sequences: Sequence[PipelinedSequence],
    plan: SegmentPlan,
    share_prompts: PromptShares = first_come,
) -> list[SegmentShare]:
    """Choose the rows of the next segment; `sequences` by seniority.

    Roots and nodes of drafts, as many as the plan of trees says; nodes of the text where they pay
    by themselves, but no more than all that a segment may have. None leaves before its parent.
    """
    counts = share_prompts(sequences, plan.prompt_rows)
    shares = [SegmentShare(s, rows) for s, rows in zip(sequences, counts, strict=True)]
    found = (candidates(share, at) for at, share in enumerate(shares) if share.decodes)
    most, trees, of_text = max(plan.rows, plan.most_rows), 0, 0
    for best in heapq.merge(*found):
        if trees + of_text == most:
            break
        share = shares[best.share]
        if best.node == ROOT:
            fits, is_text = trees < plan.rows, False
        else:
            is_text = source_of(share.sequence, best.node) != DRAFT
            fits = -best.unlikeliness >= plan.pays if is_text else trees < plan.rows
            fits = fits and share.has(int(share.sequence.mirror.parent[best.node]))
        if fits:
            share.nodes.append(best.node)
            of_text, trees = of_text + is_text, trees + (not is_text)
    return [share for share in shares if share.count]


def candidates(share: SegmentShare, at: int) -> Iterator[RowCandidate]:
    """Yield what has not left of a sequence that decodes, best first.

    No more nodes than there are tree slots; none whose place among the committed positions has no
    block yet; none before the first root is back where a grammar has to be kept to, for rows may
    have to wait in the last stage until it is compiled, with all their logits.
    """
    sequence = share.sequence
    placed, mirror = sequence.kv, sequence.mirror
    if placed.root is None:
        yield RowCandidate(-ROOT_REACH, 0, sequence.served, at, ROOT, ROOT)
    sampled_at_once = not sequence.submit.grammar or placed.decodes
    if len(mirror) == 0 or not sequence.sources or not sampled_at_once:
        return
    room = placed.block_table.room - sequence.position
    reach = sequence.calibration.reach(mirror, sequence.sources)
    order, reach, depth = sorted_candidates(
        reach, mirror.tables.nodes, min(sequence.remaining, room), sequence.ends
    )
    unsent = [i for i, node in enumerate(order.tolist()) if placed.row_of(node) is None]
    for i in unsent[: placed.slots.free]:
        yield RowCandidate(-float(reach[i]), int(depth[i]), sequence.served, at, i, int(order[i]))


def source_of(sequence: PipelinedSequence, node: int) -> int:
    """Return what a node gets a row for: the draft where it has named it and may run."""
    nodes = sequence.mirror.tables.nodes
    first = int(nodes.proposer[node])
    return first if sequence.sources >> first & 1 else int(nodes.other[node])


class SegmentBuilder:
    """Columns of a segment that is being built, and the rows in it that will come back."""

    def __init__(self, number: int, next_row: Callable[[], int]) -> None:
        self.number = number
        self._next_row = next_row
        self._columns: list[tuple[int, int, int, int, int, bool]] = []
        self._masks: list[int] = []
        self.sampled: list[tuple[PipelinedSequence, SentRow]] = []

    def add(self, share: SegmentShare) -> None:
        """Add the rows of a sequence; they have left from now on."""
        sequence, placed = share.sequence, share.sequence.kv
        for _ in range(share.prompt_rows):
            self._add_committed(sequence, sample=False)
        for node in share.nodes:
            if node == ROOT:
                number = self._add_committed(sequence, sample=True)
                placed.root = self._sent(sequence, SentRow(number, self.number))
                sequence.served = self.number
            else:
                self._add_node(sequence, node)

    def build(self) -> Segment:
        """Return the segment."""
        rows, sequence, slots, tokens, positions, sample = zip(*self._columns, strict=True)
        return Segment(
            number=self.number,
            rows=np.array(rows, np.int64),
            sequence=np.array(sequence, np.int64),
            slots=np.array(slots, np.int32),
            tokens=np.array(tokens, np.int32),
            positions=np.array(positions, np.int32),
            ancestors=packed(self._masks),
            sample=np.array(sample, np.bool_),
        )

    def _add_committed(self, sequence: PipelinedSequence, sample: bool) -> int:
        """Add the row of the next committed token; return its number."""
        placed = sequence.kv
        position = placed.sent
        slot = int(placed.block_table.writable(np.array([position], np.int32))[0])
        placed.sent += 1
        return self._append(sequence, slot, int(sequence.tokens[position]), position, 0, sample)

    def _add_node(self, sequence: PipelinedSequence, node: int) -> None:
        placed, mirror = sequence.kv, sequence.mirror
        source = mirror_table.counted_source(mirror.tables.nodes, node)
        if not sequence.sources >> source & 1:
            source = source_of(sequence, node)
        sequence.source_rows[source] += 1
        slot = placed.slots.take()
        placed.rows += [None] * (node + 1 - len(placed.rows))
        row = placed.rows[node] = SentRow(0, self.number, slot, source)
        in_pool = int(placed.slots.in_pool([slot])[0])
        token, position = int(mirror.token[node]), sequence.position + int(mirror.depth[node])
        row.number = self._append(
            sequence, in_pool, token, position, mask_of(sequence, node), sample=True
        )
        self._sent(sequence, row)

    def _append(
        self,
        sequence: PipelinedSequence,
        slot: int,
        token: int,
        position: int,
        mask: int,
        sample: bool,
    ) -> int:
        number = self._next_row()
        self._columns.append((number, sequence.kv.number, slot, token, position, sample))
        self._masks.append(mask)
        return number

    def _sent(self, sequence: PipelinedSequence, row: SentRow) -> SentRow:
        self.sampled.append((sequence, row))
        return row


def mask_of(sequence: PipelinedSequence, node: int) -> int:
    """Return the tree slots of a node and its ancestors, which have all left, as bits."""
    parent, mask = sequence.mirror.parent, 0
    while node != ROOT:
        row = sequence.kv.row_of(node)
        assert row is not None
        assert row.slot != COMMITTED
        mask |= 1 << row.slot
        node = int(parent[node])
    return mask


def packed(masks: list[int]) -> Bytes:
    """Return masks as bytes, uint8[rows, width], no wider than they must be."""
    width = max(1, -(-max(mask.bit_length() for mask in masks) // 8))
    joined = b"".join(mask.to_bytes(width, "little") for mask in masks)
    return np.frombuffer(joined, np.uint8).reshape(len(masks), width)
