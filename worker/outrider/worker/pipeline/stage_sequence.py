"""What a stage knows of one sequence: where its committed KV lies, and what its tree slots hold."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.model.rows import Rows, joined
from outrider.worker.pipeline.records import Begin, Bytes, Ints, Move, Segment

NO_SLOT = -1


class PlacedRows(NamedTuple):
    """n rows of one sequence, placed in the logical context that each sees."""

    prefix: Ints
    """Committed positions seen, int32[n]; a committed row's own is among them."""
    ancestors: Ints
    """Tree slots in depth order, a node row's own last, int32[n, deepest]; then `NO_SLOT`."""
    depth: Ints
    """Ancestors in use, int32[n]; 0 for committed rows."""
    paths: Ints
    """Tokens of the ancestors' tree slots, int32[n, deepest]; then -1."""


class PathRows(NamedTuple):
    """Paths that rows claim; fields as those of `PlacedRows`."""

    ancestors: Ints
    depth: Ints
    prefix: Ints


class StageSequence:
    """One sequence on one stage.

    Committed rows and moves come in the order of positions, so their slots say which block each
    position is in.
    """

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.length = BLOCK * len(begin.prefix_blocks)
        """Committed positions that have KV."""
        self._blocks: list[int] = begin.prefix_blocks.tolist()
        self._first_slots = {block: BLOCK * i for i, block in enumerate(begin.tree_blocks.tolist())}
        room = BLOCK * len(begin.tree_blocks)
        self._tokens = np.full(room, -1, np.int32)
        self._positions = np.full(room, -1, np.int32)
        """Position of what each tree slot holds; -1: it holds nothing."""

    @property
    def table(self) -> Ints:
        """int32[blocks] block table: the blocks of committed positions, then the tree's."""
        return np.concatenate([np.array(self._blocks, np.int32), self.begin.tree_blocks])

    @property
    def first_tree_offset(self) -> int:
        """Offset of tree slot 0 in `table`."""
        return BLOCK * len(self._blocks)

    def place(self, rows: Segment) -> PlacedRows:
        """Take rows of this sequence and return their places.

        Raises `ProtocolViolation`, for a leader that keeps no books.
        """
        bits = np.unpackbits(rows.ancestors, axis=1, bitorder="little")
        depth = bits.sum(axis=1, dtype=np.int32)
        committed = depth == 0
        self._append(rows.positions[committed], rows.slots[committed])
        own = self._tree_slots(rows.slots[~committed])
        self._tokens[own], self._positions[own] = (
            rows.tokens[~committed],
            rows.positions[~committed],
        )
        prefix = rows.positions + np.int32(1) - depth
        if (prefix[~committed] != self.length).any():
            raise ProtocolViolation(
                f"node rows see {prefix} positions; {self.length} are committed"
            )
        ancestors = self._in_depth_order(bits, depth)
        self._check_paths(PathRows(ancestors, depth, prefix), own)
        paths: Ints = np.where(ancestors == NO_SLOT, np.int32(-1), self._tokens[ancestors])
        return PlacedRows(prefix, ancestors, depth, paths)

    def answered(self, rows: Segment, placed: PlacedRows) -> Ints:
        """Return the tokens among committed rows that `begin` did not hold."""
        new = (placed.depth == 0) & (rows.positions >= len(self.begin.tokens))
        tokens: Ints = rows.tokens[new]
        return tokens

    def move(self, move: Move) -> Ints:
        """Take rows that are committed; return their tokens, int32[rows].

        Rows that never came were dropped before this stage, for an End that follows: then none of
        the sequence's rows will come any more. Raises `ProtocolViolation` for slots of others.
        """
        sources, freed = self._tree_slots(move.sources), self._tree_slots(move.freed)
        expected = self.length + np.arange(len(sources))
        came = int(np.cumprod(self._positions[sources] == expected).sum())
        self._append(self._positions[sources[:came]], move.destinations[:came])
        self._positions[sources] = self._positions[freed] = -1
        return self._tokens[sources[:came]]

    def _append(self, positions: Ints, slots: Ints) -> None:
        """Note committed positions and their slots; they follow those that were known."""
        for position, slot in zip(positions.tolist(), slots.tolist(), strict=True):
            block, place = divmod(slot, BLOCK)
            if position == self.length == BLOCK * len(self._blocks):
                self._blocks.append(block)
            if (position, place) != (self.length, self.length % BLOCK) or block != self._blocks[-1]:
                raise ProtocolViolation(
                    f"position {position} in slot {slot} does not follow {self.length} committed"
                )
            self.length += 1

    def _tree_slots(self, slots: Ints) -> NDArray[np.int64]:
        """Return tree slots by their number in the pool."""
        found = [
            self._first_slots.get(slot // BLOCK, NO_SLOT * BLOCK) + slot % BLOCK
            for slot in slots.tolist()
        ]
        if min(found, default=0) < 0:
            raise ProtocolViolation(f"slots {slots} are not all tree slots of their sequence")
        return np.array(found, np.int64)

    def _check_paths(self, rows: PathRows, own: NDArray[np.int64]) -> None:
        """Raise `ProtocolViolation` unless each path holds one row a position, from the first that
        is not committed to the row's own; `own` int64[nodes] slots of the node rows."""
        places = np.arange(rows.ancestors.shape[1])
        used = places < rows.depth[:, None]
        held = self._positions[rows.ancestors]
        wrong = used & (held != rows.prefix[:, None] + places)
        if wrong.any():
            at, place = np.argwhere(wrong)[0]
            raise ProtocolViolation(
                f"an ancestor in tree slot {rows.ancestors[at, place]} has position "
                f"{held[at, place]}, not {rows.prefix[at] + place}"
            )
        nodes = np.flatnonzero(rows.depth)
        last = rows.ancestors[nodes, rows.depth[nodes] - 1]
        if (last != own).any():
            raise ProtocolViolation(f"paths end in tree slots {last}; their rows have {own}")

    def _in_depth_order(self, bits: Bytes, depth: Ints) -> Ints:
        """Return each row's tree slots by position; `bits` uint8[n, tree slots] 0 or 1."""
        row, slot = np.nonzero(bits)
        if slot.max(initial=0) >= len(self._tokens):
            raise ProtocolViolation(f"an ancestor in tree slot {slot.max()} of {len(self._tokens)}")
        order = np.lexsort((self._positions[slot], row))
        ancestors = np.full((len(depth), max(1, depth.max(initial=0))), NO_SLOT, np.int32)
        ancestors[np.arange(ancestors.shape[1]) < depth[:, None]] = slot[order]
        return ancestors


class SequenceRows(NamedTuple):
    """The rows of one sequence in a segment."""

    sequence: StageSequence
    rows: Segment
    placed: PlacedRows

    def for_pass(self, wants_logits: bool) -> Rows:
        """Return them as a forward pass takes them, with the logits that are to be sampled."""
        rows, placed = self.rows, self.placed
        offsets = np.maximum(placed.ancestors, 0) + np.int32(self.sequence.first_tree_offset)
        return Rows(
            tokens=rows.tokens,
            positions=rows.positions,
            slots=rows.slots,
            sequence=np.zeros(rows.count, np.int32),
            prefix=placed.prefix,
            ancestors=offsets,
            depth=placed.depth,
            outputs=np.flatnonzero(rows.sample & wants_logits).astype(np.int32),
            tables=self.sequence.table[None],
        )


def by_sequence(segment: Segment, sequences: Mapping[int, StageSequence]) -> Iterator[SequenceRows]:
    """Place the rows of each sequence of a segment, in order.

    Raises `ProtocolViolation` for a sequence that has not begun.
    """
    for number in dict.fromkeys(segment.sequence.tolist()):
        if number not in sequences:
            raise ProtocolViolation(f"rows of sequence {number}, which has not begun")
        rows = segment.keep(segment.sequence == number)
        yield SequenceRows(sequences[number], rows, sequences[number].place(rows))


def pass_rows(parts: list[SequenceRows], wants_logits: bool) -> Rows:
    """Return the rows of one pass, in the order of the segment."""
    return joined([part.for_pass(wants_logits) for part in parts])
