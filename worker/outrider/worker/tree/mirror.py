"""The target's copy of the tree that a draft grows, and validation of what the draft sends for it.

The rules are those of docs/concepts/speculation.md, Mirror. Leaves closing the session, and bounds
on message size and rate, to the link; selecting rows to the target.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.jit.handle import handle
from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree import mirror_table
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.mirror_table import (
    ACKNOWLEDGED,
    ATTACHED,
    BAD_LOGPROB,
    BAD_PARENT,
    BAD_TOKEN,
    CAPACITY,
    COUNT,
    DRAFT,
    DRAFTED,
    FINE,
    ID_COUNT,
    LAST_ID,
    LOCAL_CAPACITY,
    MASKED_TOKEN,
    ROOT_POSITION,
    SUFFIX,
    MirrorNodes,
    MirrorTables,
    NodeIds,
)

__all__ = ["DRAFT", "SUFFIX", "Mirror"]

MAX_COMMITTED = 1024
"""Tokens that may be committed to a mirror that was not given the sequence's."""

_FAULTS = {
    BAD_PARENT: "parent {parent} of node {id} is not an id before it",
    BAD_TOKEN: "token {token} of node {id} is outside the vocabulary of {vocabulary}",
    MASKED_TOKEN: "token {token} of node {id} is one on which the tokenizers differ",
    BAD_LOGPROB: "log-probability {logprob} of node {id} is not finite and at most 0",
}


class Mirror:
    """One sequence's tree; nodes keep their order of arrival, so parents precede children.

    Nodes with an id belong to the one draft session that is attached; those without are local, or
    of a session that is gone. Each kind has its own room, so local nodes never cost a draft's node
    its place. `capacity` must be at least the nodes-ahead granted to the draft.
    """

    def __init__(
        self,
        root_position: int,
        capacity: int = 1024,
        local_capacity: int = 256,
        tokens: Ints | None = None,
    ) -> None:
        """`tokens` int32[positions]: the sequence's committed tokens, to which commits add.

        None: an array of the mirror's own, with room for a few.
        """
        if tokens is None:
            tokens = np.zeros(root_position + 1 + MAX_COMMITTED, np.int32)
        self.tokens = tokens
        self._nodes = MirrorNodes.empty(capacity + local_capacity)
        numbers = np.zeros(9, np.int64)
        self.tables = MirrorTables(self._nodes, NodeIds.empty(2 * capacity), tokens, numbers)
        """What compiled code reads and writes."""
        self._handle = handle(self.tables)
        self._numbers: Any = memoryview(numbers.data)  # read faster than the array
        self._numbers[ROOT_POSITION] = self._numbers[ACKNOWLEDGED] = root_position
        self._numbers[ATTACHED] = 1
        self._numbers[CAPACITY], self._numbers[LOCAL_CAPACITY] = capacity, local_capacity

    def __len__(self) -> int:
        return int(self._numbers[COUNT])

    @property
    def root_position(self) -> int:
        """Position of the last committed token."""
        return int(self._numbers[ROOT_POSITION])

    @property
    def acknowledged(self) -> int:
        """Position of the latest draft root that was received; ids committed before it are
        forgotten.
        """
        return int(self._numbers[ACKNOWLEDGED])

    @property
    def last_id(self) -> int:
        """Highest id received in this session."""
        return int(self._numbers[LAST_ID])

    @property
    def attached(self) -> bool:
        """True while a draft session feeds this mirror."""
        return bool(self._numbers[ATTACHED])

    @property
    def parent(self) -> Ints:
        """[nodes] index of the parent, `ROOT` for children of the root."""
        return self._nodes.parent[: len(self)]

    @property
    def token(self) -> Ints:
        """[nodes] draft tokens."""
        return self._nodes.token[: len(self)]

    @property
    def depth(self) -> Ints:
        """[nodes] distance from the root, from 1."""
        return self._nodes.depth[: len(self)]

    @property
    def logprob(self) -> Floats:
        """[nodes] the proposer's estimate that the token follows its parent; natural log, <= 0."""
        return self._nodes.logprob[: len(self)]

    @property
    def proposer(self) -> Ints:
        """[nodes] `DRAFT`, or the local one that was first."""
        return self._nodes.proposer[: len(self)]

    @property
    def drafted(self) -> int:
        """Nodes that the present session sent."""
        return int(self._numbers[DRAFTED])

    @property
    def first_id(self) -> Ids:
        """[nodes] the first id of each node in this session, 0 for none."""
        return self._nodes.first_id[: len(self)]

    def receive(self, growth: Growth, granted: int, allowed: NDArray[np.bool_]) -> int:
        """Add nodes that a draft sent; return the number that were dead.

        Raises `ProtocolViolation`, and changes nothing, unless an honest draft could have sent
        this. `granted` is the highest nodes-ahead ever granted to the session, `allowed`
        bool[vocabulary] the ids that mean the same on both sides. Acknowledges commits up to the
        growth's root. Indices of nodes do not change.
        """
        self._check_numbers(growth, granted)
        fault, found = mirror_table.receive(self._handle, growth, allowed)
        if fault == FINE:
            return int(found)
        raise ProtocolViolation(
            _FAULTS[fault].format(
                id=growth.first_id + found,
                parent=growth.parents[found],
                token=growth.tokens[found],
                logprob=growth.logprobs[found],
                vocabulary=len(allowed),
            )
        )

    def add_local(
        self, parents: Ints, tokens: Ints, logprobs: Floats, proposer: int = SUFFIX
    ) -> int:
        """Add nodes of the target's own; return the number that were new and found room.

        `parents` int32[n]: `ROOT`, a node's index, or `len(self) + i` for node i of this call. To a
        node that the tree already holds, what is added is the estimate alone; it may be a parent.
        """
        return int(mirror_table.add_local(self._handle, parents, tokens, logprobs, proposer))

    def commit(self, tokens: Ints) -> bool:
        """Move the root along `tokens` int32[n]; return True for a fall-in.

        Raises `ValueError` where the sequence has no room for them.
        """
        if self.root_position + len(tokens) >= len(self.tokens):
            raise ValueError(f"{len(tokens)} tokens after {self.root_position}: there is no room")
        return bool(mirror_table.commit_tokens(self._handle, tokens))

    def detach(self) -> None:
        """Forget all ids: the session died. The oldest nodes stay, as local ones do."""
        numbers = self._numbers
        numbers[ID_COUNT] = 0
        numbers[COUNT], numbers[DRAFTED] = min(len(self), numbers[LOCAL_CAPACITY]), 0
        self._nodes.first_id[: len(self)] = 0
        numbers[ACKNOWLEDGED] = self.root_position
        numbers[ATTACHED] = 0

    def attach(self) -> None:
        """Begin a new session, opened with all tokens committed so far; ids count from 1 again."""
        self.detach()
        self._numbers[ATTACHED], self._numbers[LAST_ID] = 1, 0

    def _check_numbers(self, growth: Growth, granted: int) -> None:
        """Raise `ProtocolViolation` for counts, positions or ids that compiled code must not see.

        Unsigned numbers of the wire may be reinterpreted as signed: what overflows is negative, and
        so refused.
        """
        root_position, first_id, parents, tokens, logprobs = growth
        nodes = len(parents)
        if len(tokens) != nodes or len(logprobs) != nodes:
            raise ProtocolViolation(
                f"{nodes} parents, {len(tokens)} tokens and {len(logprobs)} log-probabilities"
            )
        if nodes > granted:
            raise ProtocolViolation(f"{nodes} nodes in one message; {granted} were granted")
        if not self.acknowledged <= root_position <= self.root_position:
            raise ProtocolViolation(
                f"root position {root_position} is not from {self.acknowledged}, the last "
                f"one received, to {self.root_position}, the target's"
            )
        if not 0 <= first_id < 2**62 or (nodes and first_id <= self.last_id):
            raise ProtocolViolation(f"id {first_id} does not follow id {self.last_id}")
