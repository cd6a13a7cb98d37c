"""The draft's copy of one session's tree: leaves to expand, candidates to send, KV slots to move.

Leaves running rows, moving KV, and choosing among sessions to the draft's scheduler. Slots are
offsets in the session's block table: committed position p lives at slot p, expanded nodes right
behind the root.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.tree import draft_ids, draft_table, reroot
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.draft_table import (
    CACHED,
    CANDIDATES,
    LAST_ID,
    NODES,
    ROOT_POSITION,
    SHIFT,
    ChildCandidates,
    DraftNodes,
    DraftTables,
)
from outrider.worker.tree.growth import Floats, Growth, Ints
from outrider.worker.tree.reading import Reading
from outrider.worker.tree.walk import ROOT

NO_TOKENS = np.empty(0, np.int32)
"""End tokens of a tree without any."""
SAME = Reading.same(1 << 30)
"""Reading of a draft that knows all ids."""


@dataclass(frozen=True, slots=True)
class Reroot:
    """Result of a commit: the fate of the draft's tree, and moves of KV that the caller makes."""

    fall_in: bool
    matched: int
    """Committed tokens that the tree held."""
    sources: Ints
    """Slots to read, all of them before any is written, int32[moves]."""
    destinations: Ints
    """Slots to write, int32[moves]."""


class DraftTree:
    """Draft tokens below the last committed one; ids count from 1 and are never used again.

    Tokens are the target's; the draft's model reads them as its own ids, by `reading`. A position
    without "target" counts those ids. The block table needs `capacity` slots more than the longest
    context. A node that was sent leaves the tree only by a commit. The tables are laid out once;
    all that a pass does to them is done by compiled functions, each in one call.
    """

    def __init__(
        self,
        ids_committed: int,
        capacity: int = 1024,
        *,
        end_tokens: Ints = NO_TOKENS,
        candidate_capacity: int = 384,
        reading: Reading = SAME,
        tokens_committed: int | None = None,
    ) -> None:
        """`ids_committed`: the draft's; `tokens_committed`: the target's, P + 1; None: as many."""
        state = np.zeros(6, np.int64)
        self._numbers: Any = memoryview(state.data)  # read faster than the array
        self._numbers[ROOT_POSITION] = ids_committed - 1
        self._numbers[SHIFT] = 0 if tokens_committed is None else ids_committed - tokens_committed
        self._tables = DraftTables(
            DraftNodes.empty(capacity),
            ChildCandidates.empty(candidate_capacity),
            state,
            np.asarray(end_tokens, np.int32),
            reading,
        )
        self._tree = handle(self._tables)

    def __len__(self) -> int:
        return int(self._numbers[NODES])

    @property
    def root_position(self) -> int:
        """Position of the last committed id; also the root's slot."""
        return int(self._numbers[ROOT_POSITION])

    @property
    def target_position(self) -> int:
        """Position P of the last committed token in the target's text."""
        return int(self._numbers[ROOT_POSITION] - self._numbers[SHIFT])

    @property
    def longest(self) -> int:
        """Most of the draft's ids that one token is read as."""
        return self._tables.reading.longest

    @property
    def cached(self) -> int:
        """Committed positions, from 0, whose KV is in place."""
        return int(self._numbers[CACHED])

    @property
    def last_id(self) -> int:
        """Highest id given to a node."""
        return int(self._numbers[LAST_ID])

    @property
    def root_expanded(self) -> bool:
        """True if the root's row has run."""
        return self.cached > self.root_position

    @property
    def nodes(self) -> DraftNodes:
        """Columns of the live nodes; parents precede children."""
        return DraftNodes._make(column[: len(self)] for column in self._tables.nodes)

    @property
    def candidates(self) -> ChildCandidates:
        """Columns of the children that were offered but not sent yet."""
        count = int(self._numbers[CANDIDATES])
        return ChildCandidates._make(column[:count] for column in self._tables.candidates)

    @property
    def compiled(self) -> Handle[DraftTables]:
        """Its tables, for compiled code."""
        return self._tree

    def prefill(self, rows: DraftRows, block_table: BlockTable, tokens: Ints, most: int) -> int:
        """Write rows of committed `tokens`, the draft's ids, without KV, at most `most`; return
        their number.

        The last is the root's, whose children are wanted.
        """
        table, published = block_table.table, block_table.published
        found: int = draft_table.prefill_rows(
            self._tree, rows.handle, table, published, tokens, most
        )
        return found

    def mark_prefilled(self, positions: int) -> None:
        """Note that the next `positions` without KV have run, the root's perhaps among them."""
        if positions > self.root_position + 1 - self.cached:
            raise ValueError(f"{positions} positions ran: {self.cached} to {self.root_position}")
        self._numbers[CACHED] += positions

    def has_leaves(self, depth_limit: int) -> bool:
        """True if there is a leaf to expand; its children must not be deeper than the limit.

        Nothing follows an end token.
        """
        return bool(draft_table.has_leaves(self._tree, depth_limit))

    def expand(
        self,
        rows: DraftRows,
        block_table: BlockTable,
        width: int,
        depth_limit: int,
        least: float = -math.inf,
    ) -> int:
        """Write rows of up to `width` best leaves, best first; return their number.

        After the best one, those with a score below `least` are left out.
        """
        table, published = block_table.table, block_table.published
        found: int = draft_table.leaf_rows(
            self._tree, rows.handle, table, published, width, depth_limit, least
        )
        return found

    def path_tokens(self, leaves: Ints) -> Ints:
        """Return int32[leaves, deepest], the tokens of each leaf's path, its own last, then -1."""
        if len(leaves) and leaves[0] == ROOT:
            return np.zeros((1, 0), np.int32)
        tokens: Ints = draft_table.path_tokens(self._tables.nodes, leaves)
        return tokens

    def offer(
        self,
        leaves: Ints,
        offsets: Ints,
        tokens: Ints,
        logprobs: Floats,
        depth_bonus: float = 0.0,
    ) -> None:
        """Note that rows ran, and add candidates: `tokens` and `logprobs` [leaves, k] per leaf.

        The KV of `leaves` is at `offsets`. `depth_bonus` is added to the score for each level, so
        that depth is preferred to breadth.

        The tokens of one leaf must differ. Those with a log-probability of -inf are skipped; when
        there is no room the worst candidates go.
        """
        draft_table.offer(self._tree, leaves, offsets, tokens, logprobs, depth_bonus)

    def send(self, nodes_ahead: int, max_new_nodes: int, depth_limit: int) -> Growth | None:
        """Make nodes of the best candidates, at most `max_new_nodes`, and return them.

        More only where none of them may be expanded, for otherwise the next pass has work, and what
        is left may be outdone by its children. At most `nodes_ahead` nodes live. None where there
        is nothing to send.
        """
        parents, tokens, logprobs = draft_table.send(
            self._tree, nodes_ahead, max_new_nodes, depth_limit
        )
        if not len(parents):
            return None
        return Growth(
            self.target_position, self.last_id + 1 - len(parents), parents, tokens, logprobs
        )

    def read(self, tokens: Ints) -> Ints:
        """Return the draft's ids of the target's tokens."""
        ids: Ints = draft_ids.read(self._tables.reading, tokens)
        return ids

    def commit(self, position: int, tokens: Ints) -> Reroot:
        """Move the root from `position` along `tokens` int32[n >= 1]; ids and scores are kept.

        Afterwards what has no KV is the suffix to run, a new root that was a leaf at its end.
        Raises `ProtocolViolation` where `position` is not the root's or there are no tokens.
        """
        if position != self.target_position or len(tokens) == 0:
            raise ProtocolViolation(
                f"commit of {len(tokens)} tokens after {position}; the root is at "
                f"{self.target_position}"
            )
        matched, sources, destinations = reroot.commit(self._tree, tokens)
        return Reroot(matched == len(tokens), matched, sources, destinations)
