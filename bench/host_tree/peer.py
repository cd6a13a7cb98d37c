"""The other sides of `bench.host_tree`: a draft without a model, and a target without one.

They answer the loop's messages in its process, which is not timed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.host_tree.models import CHILDREN, OUTPUTS, SHARES, children, next_tokens
from outrider.worker.kv.block_pool import BLOCK, BlockTable
from outrider.worker.link.wire import (
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
    joined,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import ROOT

DEPTH, WIDTH, NEW_NODES = 12, 8, 8
PROMPT = np.arange(10, dtype=np.int32)
NODES_AHEAD = 64
TARGET_SECONDS, DRAFT_SECONDS = 0.005, 0.0005
"""Seconds of a pass: about those of the demo's pair on Zen 5."""
MAX_LENGTH = 1900
"""Tokens after which the target without a model ends its session and opens another."""
EVERYTHING = np.ones(OUTPUTS, np.bool_)
"""Tokens that may be draft tokens."""
TABLE = BlockTable(np.arange(4 * MAX_LENGTH // BLOCK, dtype=np.int32), 0, 0, b"", False)
"""Block table of every session: no model reads its KV."""


@dataclass(slots=True)
class GrownSession:
    """A session of the draft without a model."""

    tree: DraftTree
    tokens: Ints
    """[twice the longest] committed tokens, then room."""
    ahead: int

    @classmethod
    def of(cls, tokens: Ints, ahead: int) -> "GrownSession":
        """Open a session."""
        room = np.zeros(2 * MAX_LENGTH, np.int32)
        room[: len(tokens)] = tokens
        return cls(DraftTree(len(tokens)), room, ahead)

    def commit(self, position: int, tokens: Ints) -> None:
        """Move the root."""
        self.tokens[position + 1 : position + 1 + len(tokens)] = tokens
        self.tree.commit(position, tokens)


class Grower:
    """A draft without a model: after each commit it grows the tree to its limit at once."""

    def __init__(self, messages: int) -> None:
        """Growth after a commit comes in so many messages."""
        self.messages = messages
        self._sessions: dict[int, GrownSession] = {}
        self._rows = DraftRows(MAX_LENGTH, NODES_AHEAD)

    def answer(self, message: FromTarget) -> list[list[FromDraft]]:
        """Apply one message of the target; return messages that each travel by themselves."""
        match message:
            case Open(tokens=tokens, limits=limits):
                self._sessions[message.session] = GrownSession.of(tokens, limits.nodes_ahead)
            case Limits(nodes_ahead=nodes_ahead):
                self._sessions[message.session].ahead = nodes_ahead
            case Commit(position=position, tokens=tokens):
                self._sessions[message.session].commit(position, tokens)
            case Close():
                del self._sessions[message.session]
                return []
        growths = self._grow(self._sessions[message.session])
        parts = np.array_split(np.arange(len(growths)), self.messages)
        grows = [[Grow(message.session, growths[i]) for i in part] for part in parts if len(part)]
        return [joined(one) for one in grows]

    def _grow(self, session: GrownSession) -> list[Growth]:
        tree = session.tree
        growths: list[Growth] = []
        while True:
            if tree.root_expanded:
                tree.expand(self._rows, TABLE, WIDTH, DEPTH)
            else:
                tree.mark_prefilled(tree.prefill(self._rows, TABLE, session.tokens, MAX_LENGTH))
            rows = self._rows.take()
            logprobs = np.broadcast_to(SHARES, (len(rows.leaf), CHILDREN)).copy()
            tokens = children(rows.token[rows.output])
            tree.offer(rows.leaf, rows.offset, tokens, logprobs)
            growth = tree.send(session.ahead, NEW_NODES, DEPTH)
            if growth is None:
                return growths
            growths.append(growth)


class Committer:
    """A target without a model: it commits what follows, as far as its mirror goes."""

    def __init__(self, nodes_ahead: int) -> None:
        self._nodes_ahead = nodes_ahead
        self._session = 0
        self._token = 0
        self._mirror = Mirror(0)

    def open(self) -> Open:
        """Open the next session."""
        self._session += 1
        self._token = int(PROMPT[-1])
        self._mirror = Mirror(len(PROMPT) - 1, tokens=np.zeros(2 * MAX_LENGTH, np.int32))
        limits = Limits(self._session, DEPTH, WIDTH, self._nodes_ahead, 1.0)
        return Open(self._session, PROMPT, SamplingParams(), limits, len(PROMPT))

    def hear(self, messages: Sequence[FromDraft]) -> None:
        """Take growth in."""
        for message in messages:
            if isinstance(message, Grow) and message.session == self._session:
                self._mirror.receive(message.growth, self._nodes_ahead, EVERYTHING)

    def commit(self) -> list[FromTarget]:
        """Return a commit; at the end of a text, the end of its session and another one."""
        if self._mirror.root_position > MAX_LENGTH:
            return [Close(self._session, CloseReason.FINISHED), self.open()]
        mirror, path = self._mirror, []
        node: int | None = ROOT
        while node is not None:
            self._token = int(next_tokens(np.array([self._token], np.int32))[0])
            path.append(self._token)
            found = np.flatnonzero((mirror.parent == node) & (mirror.token == self._token))
            node = int(found[0]) if len(found) else None
        position, tokens = mirror.root_position, np.array(path, np.int32)
        mirror.commit(tokens)
        return [Commit(self._session, position, tokens)]
