"""The target's copy of the tree that a draft grows (speculation.md, Mirror).

Leaves reading messages to the link, checking them to `growth`, and choosing rows to `planner`.
"""

import numpy as np

from outrider.worker.tree import mirror_table as node_table
from outrider.worker.tree.mirror_table import DRAFT, LOCAL, Nodes
from outrider.worker.tree.node_ids import Names, forget
from outrider.worker.tree.walk import Floats, Ids, Ints

__all__ = ["DRAFT", "LOCAL", "Mirror"]


class Mirror:
    """One sequence's tree; nodes keep their order of arrival, so parents precede children.

    Named nodes belong to the one draft session that is attached; unnamed ones are local guesses, or
    guesses of a session that is gone. Each kind has its own room, so local guesses never cost a
    draft's node its place. `capacity` must be at least the nodes-ahead granted to the draft.
    """

    def __init__(self, root_position: int, capacity: int = 1024, local_capacity: int = 256) -> None:
        self.root_position = root_position
        """Position of the last committed token."""
        self.acknowledged = root_position
        """Latest draft root that was heard of; ids committed before it are forgotten."""
        self.last_id = 0
        """Highest id received in this session."""
        self.attached = True
        """Whether a draft session feeds this mirror."""
        self._capacity = capacity
        self._local_capacity = local_capacity
        self._nodes = Nodes.empty(capacity + local_capacity)
        self._count = 0
        self._names = Names.empty(2 * capacity)
        self._names_count = 0
        self._history = np.empty(64, np.int32)  # tokens committed after `acknowledged`

    def __len__(self) -> int:
        return self._count

    @property
    def parent(self) -> Ints:
        """[nodes] index of the parent, `ROOT` for children of the root."""
        return self._nodes.parent[: self._count]

    @property
    def token(self) -> Ints:
        """[nodes] the token that each node guesses."""
        return self._nodes.token[: self._count]

    @property
    def depth(self) -> Ints:
        """[nodes] distance from the root, from 1."""
        return self._nodes.depth[: self._count]

    @property
    def logprob(self) -> Floats:
        """[nodes] the proposer's estimate that the token follows its parent; natural log, <= 0."""
        return self._nodes.logprob[: self._count]

    @property
    def proposer(self) -> Ints:
        """[nodes] `DRAFT` or `LOCAL`."""
        return self._nodes.proposer[: self._count]

    @property
    def first_id(self) -> Ids:
        """[nodes] the first name of each node in this session, 0 for none."""
        return self._nodes.first_id[: self._count]

    def grow(
        self, root_position: int, first_id: int, parents: Ids, tokens: Ints, logprobs: Floats
    ) -> int:
        """Adds the nodes of one `Grow` that `check_growth` let pass; returns how many were dead.

        `parents` int64[n] are ids, 0 for the draft's root; `tokens` int32[n]; `logprobs`
        float32[n]. Acknowledges commits up to `root_position`. Indices of nodes do not change.
        """
        self._acknowledge(root_position)
        self._count, self._names_count, dropped = node_table.grow(
            self._nodes,
            self._count,
            self._names,
            self._names_count,
            self._history,
            self.acknowledged,
            self.root_position,
            self._capacity,
            first_id,
            parents,
            tokens,
            logprobs,
        )
        self.last_id = max(self.last_id, first_id + len(parents) - 1)
        return int(dropped)

    def add_local(self, parents: Ints, tokens: Ints, logprobs: Floats) -> int:
        """Adds guesses of the target's own; returns how many were new and found room.

        `parents` int32[n]: `ROOT`, a node's index, or `len(self) + i` for guess i of this call. A
        guess that the tree already holds adds nothing, but may be a parent here.
        """
        before = self._count
        self._count = node_table.add_local(
            self._nodes, before, self._local_capacity, parents, tokens, logprobs
        )
        return self._count - before

    def commit(self, tokens: Ints) -> bool:
        """Moves the root along `tokens` int32[n]; True for a fall-in, False for a fall-out."""
        self._remember(tokens)
        self._count, self._names_count, matched = node_table.commit(
            self._nodes, self._count, self._names, self._names_count, self.root_position, tokens
        )
        self.root_position += len(tokens)
        if not self.attached:
            self.acknowledged = self.root_position
        return bool(matched == len(tokens))

    def detach(self) -> None:
        """Forgets all names: the session died. The oldest nodes stay, as guesses like any other."""
        self._names_count = 0
        self._count = min(self._count, self._local_capacity)
        self._nodes.first_id[: self._count] = 0
        self.acknowledged = self.root_position
        self.attached = False

    def attach(self) -> None:
        """Begins a new session, opened with all tokens committed so far; ids count from 1 again."""
        self.detach()
        self.attached = True
        self.last_id = 0

    def _acknowledge(self, root_position: int) -> None:
        known = root_position - self.acknowledged
        if known == 0:
            return
        kept = self.root_position - root_position
        self._history[:kept] = self._history[known : known + kept]
        self.acknowledged = root_position
        self._names_count = forget(self._names, self._names_count, root_position)

    def _remember(self, tokens: Ints) -> None:
        if not self.attached:
            return
        start = self.root_position - self.acknowledged
        end = start + len(tokens)
        if end > len(self._history):
            longer = np.empty(2 * end, np.int32)
            longer[:start] = self._history[:start]
            self._history = longer
        self._history[start:end] = tokens
