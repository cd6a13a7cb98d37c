"""Draft of `bench.swiftspec` that sends subtrees in lock step with its target's commits.

For comparison alone: no service can have it. What a target waits for is `target_sides`'.
"""

from collections.abc import Sequence

import numpy as np

from bench.swiftspec.draft_sides import Key, MirroredDraft
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import TopChildren
from outrider.worker.link.wire import Commit, FromDraft, FromTarget, Grow
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.walk import ROOT

SUBTREE = 8
"""Nodes of a subtree, SwiftSpec's bs."""


class Replies(SendBuffer):
    """A draft's messages without its growth: what it sends of that are replies alone."""

    def put(self, link: int, message: FromDraft, now: float) -> None:
        """Add one message that is no growth."""
        if not isinstance(message, Grow):
            super().put(link, message, now)

    def reply(self, link: int, subtree: Grow, now: float) -> None:
        """Send a subtree at once."""
        super().put(link, subtree, now)
        self.flush()


class LockStepDraft(MirroredDraft):
    """A draft that sends a subtree for each commit, and nothing else (SwiftSpec, Algorithm 1).

    It grows its tree all the time. Once the tree has as many nodes as a subtree, those of the most
    probable one are sent, as a snapshot. Ids count on with every message: to the target's mirror, a
    node that it has already gets another name.
    """

    def __init__(self, inner: DraftScheduler, replies: Replies, nodes: int = SUBTREE) -> None:
        """`inner` puts its messages into `replies`."""
        super().__init__(inner)
        self._replies = replies
        self._nodes = nodes
        self._last_id: dict[Key, int] = {}
        self._owed: set[Key] = set()
        """Sessions whose targets wait for a subtree."""

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """Apply one message; a commit wants a reply."""
        super().apply(link, message, now)
        if isinstance(message, Commit):
            self._owed.add((link, message.session))
        self._reply(now)

    def settle(self, step: DraftBatch, output: Sequence[TopChildren], now: float) -> None:
        """Apply the output of a pass; reply if the tree is large enough now."""
        super().settle(step, output, now)
        self._reply(now)

    def _reply(self, now: float) -> None:
        for key in tuple(self._owed):
            session = self.inner.sessions.live.get(key)
            if session is None:
                self._owed.discard(key)
                self._last_id.pop(key, None)
            elif self._is_ready(session):
                self._owed.discard(key)
                growth = subtree(session.tree, self._nodes, self._last_id.get(key, 0) + 1)
                self._last_id[key] = growth.first_id + len(growth.tokens) - 1
                self._replies.reply(session.link, Grow(session.number, growth), now)

    def _is_ready(self, session: DraftSession) -> bool:
        """True if the tree has nodes enough, or cannot grow."""
        if session.needs_prefill:
            return False
        return len(session.tree) >= self._nodes or not session.needs_pass


def subtree(tree: DraftTree, most: int, first_id: int) -> Growth:
    """Return the `most` likeliest nodes of a tree, by the sum of log-probabilities on their paths.

    They hang together: no sum rises along a path, and of equal ones the parent comes first.
    """
    nodes = tree.nodes
    weights = nodes.logprob.astype(np.float64)
    for node, parent in enumerate(nodes.parent.tolist()):
        if parent != ROOT:
            weights[node] += weights[parent]
    best = np.sort(np.argsort(-weights, kind="stable")[:most])
    ids = np.zeros(len(tree) + 1, np.int64)  # the last one is the root's
    ids[best] = first_id + np.arange(len(best))
    return Growth(
        tree.root_position,
        first_id,
        ids[nodes.parent[best]],
        nodes.token[best].copy(),
        nodes.logprob[best].copy(),
    )
