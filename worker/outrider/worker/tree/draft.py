"""The draft's copy of one session's tree: leaves to expand, candidates to send, KV slots to move.

Leaves running rows, moving KV, and choosing among sessions to the draft's scheduler. Slots are
offsets in the session's block table: committed position p lives at slot p, expanded nodes right
behind the root.
"""

from dataclasses import dataclass

import numpy as np

from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree import draft_table, reroot
from outrider.worker.tree.draft_table import ChildCandidates, DraftNodes, DraftTables
from outrider.worker.tree.growth import Floats, Growth, Ints
from outrider.worker.tree.walk import ROOT

NO_TOKENS = np.empty(0, np.int32)
"""End tokens of a tree without any."""


@dataclass(frozen=True, slots=True)
class LeafRows:
    """Rows that expand leaves; padding of `ancestors` is -1."""

    tokens: Ints
    """int32[leaves]."""
    positions: Ints
    """int32[leaves]."""
    slots: Ints
    """int32[leaves] where each row's KV goes."""
    ancestors: Ints
    """int32[leaves, deepest] slots behind the prefix in depth order, the row's own last.

    The root's own row has one entry, the root's slot."""
    prefix: Ints
    """int32[leaves] committed positions that each row sees before `ancestors`: those up to the root
    and with it; for the root's own row, those before the root."""


@dataclass(frozen=True, slots=True)
class Reroot:
    """Result of a commit: the fate of the draft's tree, and moves of KV that the caller makes."""

    fall_in: bool
    matched: int
    """Committed tokens that the tree held."""
    sources: Ints
    """int32[moves] slots to read, all of them before any is written."""
    destinations: Ints
    """int32[moves] slots to write."""


class DraftTree:
    """Draft tokens below the last committed one; ids count from 1 and are never used again.

    `tokens_committed` is P + 1, the last of them `root_token`. The block table needs `capacity`
    slots more than the longest context. A node that was sent leaves the tree only by a commit.
    """

    def __init__(
        self,
        tokens_committed: int,
        root_token: int,
        capacity: int = 1024,
        *,
        end_tokens: Ints = NO_TOKENS,
        candidate_capacity: int = 384,
    ) -> None:
        self.root_position = tokens_committed - 1
        """Position P of the last committed token; also the root's slot."""
        self.root_token = root_token
        """The token at P."""
        self.cached = 0
        """Committed positions, from 0, whose KV is in place."""
        self.last_id = 0
        """Highest id given to a node."""
        self._end_tokens = np.asarray(end_tokens, np.int32)
        self._nodes = DraftNodes.empty(capacity)
        self._count = 0
        self._candidates = ChildCandidates.empty(candidate_capacity)
        self._candidate_count = 0
        self._tables = DraftTables(self._nodes, self._candidates)

    def __len__(self) -> int:
        return self._count

    @property
    def pending(self) -> range:
        """Committed positions before the root whose tokens must be run before any leaf."""
        return range(self.cached, self.root_position)

    @property
    def root_expanded(self) -> bool:
        """True if the root's row has run."""
        return self.cached > self.root_position

    @property
    def nodes(self) -> DraftNodes:
        """Columns of the live nodes; parents precede children."""
        return DraftNodes._make(column[: self._count] for column in self._nodes)

    @property
    def candidates(self) -> ChildCandidates:
        """Columns of the children that were offered but not sent yet."""
        return ChildCandidates._make(c[: self._candidate_count] for c in self._candidates)

    def mark_prefilled(self, positions: int) -> None:
        """Note that the next `positions` of `pending` have run."""
        if positions > len(self.pending):
            raise ValueError(f"{positions} positions ran, {len(self.pending)} were pending")
        self.cached += positions

    def leaves(self, width: int, depth_limit: int) -> Ints:
        """Return up to `width` best unexpanded leaves, best first; `ROOT` stands for the root.

        A leaf's children must not be deeper than `depth_limit`, and nothing follows an end token.
        """
        if not self.root_expanded:
            grows = width > 0 and depth_limit > 0
            return np.array([ROOT] if grows else [], np.int32)
        best: Ints = draft_table.leaves(
            self._nodes, self._count, width, depth_limit, self._end_tokens
        )
        return best

    def rows(self, leaves: Ints) -> LeafRows:
        """Return the rows that expand `leaves`, with the slots that they take."""
        if len(leaves) and leaves[0] == ROOT:
            position = np.array([self.root_position], np.int32)
            token = np.array([self.root_token], np.int32)
            return LeafRows(token, position, position, position[:, None], position)
        free = self.root_position + 1 + draft_table.expanded_count(self._nodes, self._count)
        slots = np.arange(free, free + len(leaves), dtype=np.int32)
        return LeafRows(
            self._nodes.token[leaves],
            self.root_position + self._nodes.depth[leaves],
            slots,
            draft_table.ancestor_slots(self._nodes, leaves, slots),
            np.full(len(leaves), self.root_position + 1, np.int32),
        )

    def path_tokens(self, leaves: Ints) -> Ints:
        """Return int32[leaves, deepest], the tokens of each leaf's path, its own last, then -1."""
        if len(leaves) and leaves[0] == ROOT:
            return np.zeros((1, 0), np.int32)
        tokens: Ints = draft_table.path_tokens(self._nodes, leaves)
        return tokens

    def mark_expanded(self, leaves: Ints, slots: Ints) -> None:
        """Note that the rows of `leaves` have run and left their KV in `slots`."""
        if len(leaves) and leaves[0] == ROOT:
            if self.pending:
                raise ValueError(f"the root ran before positions {self.pending} did")
            self.cached = self.root_position + 1
        else:
            self._nodes.slot[leaves] = slots

    def offer(self, leaves: Ints, tokens: Ints, logprobs: Floats, depth_bonus: float = 0.0) -> None:
        """Add candidates: `tokens` int32[leaves, k] and `logprobs` float32[leaves, k] per leaf.

        `depth_bonus` is added to the score for each level, so that depth is preferred to breadth.

        The tokens of one leaf must differ. Those with a log-probability of -inf are skipped; when
        there is no room the worst candidates go.
        """
        self._candidate_count = draft_table.offer(
            self._tables,
            self._candidate_count,
            leaves,
            tokens,
            logprobs,
            np.float32(depth_bonus),
        )

    def send(self, nodes_ahead: int, max_new_nodes: int) -> Growth | None:
        """Make nodes of the best candidates, at most `max_new_nodes`, and return them.

        At most `nodes_ahead` nodes live. None where there is nothing to send.
        """
        room = min(nodes_ahead, len(self._nodes.parent)) - self._count
        first = self._count
        self._count, self._candidate_count = draft_table.promote(
            self._tables,
            first,
            self._candidate_count,
            min(max_new_nodes, room),
            self.last_id + 1,
        )
        new = slice(first, self._count)
        if self._count == first:
            return None
        parent = self._nodes.parent[new]
        growth = Growth(
            self.root_position,
            self.last_id + 1,
            np.where(parent == ROOT, 0, self._nodes.id[parent]),
            self._nodes.token[new].copy(),
            self._nodes.logprob[new].copy(),
        )
        self.last_id += self._count - first
        return growth

    def commit(self, position: int, tokens: Ints) -> Reroot:
        """Move the root from `position` along `tokens` int32[n >= 1]; ids and scores are kept.

        Afterwards `pending` holds the suffix to run, and a new root without KV is the best leaf.
        Raises `ProtocolViolation` where `position` is not the root's or there are no tokens.
        """
        if position != self.root_position or len(tokens) == 0:
            raise ProtocolViolation(
                f"commit of {len(tokens)} tokens after {position}; the root is at "
                f"{self.root_position}"
            )
        self._count, self._candidate_count, matched, cached, sources, destinations = reroot.commit(
            self._tables, self._count, self._candidate_count, self.root_position, tokens
        )
        self.cached += cached
        self.root_position += len(tokens)
        self.root_token = int(tokens[-1])
        return Reroot(matched == len(tokens), matched, sources, destinations)
