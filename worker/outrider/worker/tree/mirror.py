"""The target's copy of the tree that a draft grows, and validation of what the draft sends for it.

The rules are those of docs/concepts/speculation.md, Mirror. Leaves closing the session, and bounds
on message size and rate, to the link; selecting rows to the target.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.compiled import njit
from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree import mirror_table
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.mirror_table import (
    DRAFT,
    LOCAL,
    MirrorNodes,
    MirrorTables,
    NodeIds,
    forget,
)

__all__ = ["DRAFT", "LOCAL", "Mirror", "validate_growth"]

MAX_LOGPROB = 1e-3
"""Rounding may leave a log-probability above 0 by this; the mirror takes it as 0."""

_FINE, _PARENT, _TOKEN, _MASKED, _LOGPROB = range(5)
_FAULTS = {
    _PARENT: "parent {parent} of node {id} is not an id before it",
    _TOKEN: "token {token} of node {id} is outside the vocabulary of {vocabulary}",
    _MASKED: "token {token} of node {id} is one on which the tokenizers differ",
    _LOGPROB: "log-probability {logprob} of node {id} is not finite and at most 0",
}


class Mirror:
    """One sequence's tree; nodes keep their order of arrival, so parents precede children.

    Nodes with an id belong to the one draft session that is attached; those without are local, or
    of a session that is gone. Each kind has its own room, so local nodes never cost a draft's node
    its place. `capacity` must be at least the nodes-ahead granted to the draft.
    """

    def __init__(self, root_position: int, capacity: int = 1024, local_capacity: int = 256) -> None:
        self.root_position = root_position
        """Position of the last committed token."""
        self.acknowledged = root_position
        """Position of the latest draft root that was received; ids committed before it are
        forgotten.
        """
        self.last_id = 0
        """Highest id received in this session."""
        self.attached = True
        """True while a draft session feeds this mirror."""
        self._capacity = capacity
        self._local_capacity = local_capacity
        self._nodes = MirrorNodes.empty(capacity + local_capacity)
        self._count = 0
        self._tables = MirrorTables(self._nodes, NodeIds.empty(2 * capacity))
        self._id_count = 0
        self._history = np.empty(64, np.int32)  # tokens committed after `acknowledged`

    def __len__(self) -> int:
        return self._count

    @property
    def parent(self) -> Ints:
        """[nodes] index of the parent, `ROOT` for children of the root."""
        return self._nodes.parent[: self._count]

    @property
    def token(self) -> Ints:
        """[nodes] draft tokens."""
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
        """[nodes] the first id of each node in this session, 0 for none."""
        return self._nodes.first_id[: self._count]

    def grow(self, growth: Growth) -> int:
        """Add nodes that `validate_growth` let pass; return the number that were dead.

        Acknowledges commits up to the growth's root. Indices of nodes do not change.
        """
        self._acknowledge(growth.root_position)
        self._count, self._id_count, dropped = mirror_table.grow(
            self._tables,
            self._count,
            self._id_count,
            self._capacity,
            self._history[: self.root_position - self.acknowledged],
            growth,
        )
        self.last_id = max(self.last_id, growth.first_id + len(growth.parents) - 1)
        return int(dropped)

    def add_local(self, parents: Ints, tokens: Ints, logprobs: Floats) -> int:
        """Add nodes of the target's own; return the number that were new and found room.

        `parents` int32[n]: `ROOT`, a node's index, or `len(self) + i` for node i of this call. A
        node that the tree already holds adds nothing, but may be a parent here.
        """
        before = self._count
        self._count = mirror_table.add_local(
            self._nodes, before, self._local_capacity, parents, tokens, logprobs
        )
        return self._count - before

    def commit(self, tokens: Ints) -> bool:
        """Move the root along `tokens` int32[n]; return True for a fall-in."""
        self._remember(tokens)
        self._count, self._id_count, matched = mirror_table.commit(
            self._tables, self._count, self._id_count, self.root_position, tokens
        )
        self.root_position += len(tokens)
        if not self.attached:
            self.acknowledged = self.root_position
        return bool(matched == len(tokens))

    def detach(self) -> None:
        """Forget all ids: the session died. The oldest nodes stay, as local ones do."""
        self._id_count = 0
        self._count = min(self._count, self._local_capacity)
        self._nodes.first_id[: self._count] = 0
        self.acknowledged = self.root_position
        self.attached = False

    def attach(self) -> None:
        """Begin a new session, opened with all tokens committed so far; ids count from 1 again."""
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
        self._id_count = forget(self._tables.ids, self._id_count, root_position)

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


def validate_growth(
    mirror: Mirror, growth: Growth, granted: int, allowed: NDArray[np.bool_]
) -> None:
    """Raise `ProtocolViolation` unless an honest draft could have sent this.

    Unsigned numbers of the wire may be reinterpreted as signed: what overflows is negative, and so
    refused. `granted` is the highest nodes-ahead ever granted to the session, `allowed`
    bool[vocabulary] the ids that mean the same on both sides.
    """
    nodes = len(growth.parents)
    if len(growth.tokens) != nodes or len(growth.logprobs) != nodes:
        raise ProtocolViolation(
            f"{nodes} parents, {len(growth.tokens)} tokens and "
            f"{len(growth.logprobs)} log-probabilities"
        )
    if nodes > granted:
        raise ProtocolViolation(f"{nodes} nodes in one message; {granted} were granted")
    if not mirror.acknowledged <= growth.root_position <= mirror.root_position:
        raise ProtocolViolation(
            f"root position {growth.root_position} is not from {mirror.acknowledged}, the last "
            f"one received, to {mirror.root_position}, the target's"
        )
    if nodes and not mirror.last_id < growth.first_id < 2**62:
        raise ProtocolViolation(f"id {growth.first_id} does not follow id {mirror.last_id}")
    fault, node = _first_fault(growth, allowed)
    if fault != _FINE:
        raise ProtocolViolation(
            _FAULTS[fault].format(
                id=growth.first_id + node,
                parent=growth.parents[node],
                token=growth.tokens[node],
                logprob=growth.logprobs[node],
                vocabulary=len(allowed),
            )
        )


@njit()
def _first_fault(growth: Growth, allowed: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first fault of a growth, and the node that has it."""
    for node in range(growth.parents.shape[0]):
        if not 0 <= growth.parents[node] < growth.first_id + node:
            return _PARENT, node
        if not 0 <= growth.tokens[node] < allowed.shape[0]:
            return _TOKEN, node
        if not allowed[growth.tokens[node]]:
            return _MASKED, node
        if not (np.isfinite(growth.logprobs[node]) and growth.logprobs[node] <= MAX_LOGPROB):
            return _LOGPROB, node
    return _FINE, 0
