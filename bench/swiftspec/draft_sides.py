"""Drafts of `bench.swiftspec`: the product's scheduler, and one that uses no KV again.

Each is a `Scheduler` around the product's own. Leaves trees, rows and sessions to that, and the
exchange in lock step to `lock_step_draft`. For comparison alone: no service can have these.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.batch import DraftBatch, DraftPart
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import ChildQuery, TopChildren
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.launch.loaded import ROW_CAPACITY
from outrider.worker.link.wire import Commit, FromTarget
from outrider.worker.messages import EngineReport, FromPeer
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_table import UNEXPANDED
from outrider.worker.tree.walk import ROOT, descend

Key = tuple[int, int]
"""Link and number of a session."""


class MirroredDraft:
    """The product's draft, whose commits are counted."""

    def __init__(self, inner: DraftScheduler) -> None:
        self.inner = inner
        self.outbox = inner.outbox
        self.commits = 0
        self.fall_ins = 0
        """Commits whose tokens were all in the draft's own tree."""
        self.recomputed = 0
        """Rows whose KV was there, and was computed again."""

    def take(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        found = {"commits": self.commits, "fall_ins": self.fall_ins, "recomputed": self.recomputed}
        self.commits = self.fall_ins = self.recomputed = 0
        return found

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes."""
        return self.inner.host_seconds

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process, those of targets one by one."""
        if isinstance(message, FromPeer):
            for part in message.messages:
                self.apply(message.link, part, now)
        else:
            self.inner.receive(message, now)

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """Apply one message of a target."""
        if isinstance(message, Commit):
            self._count(link, message)
        self.inner.apply(link, message, now)

    def receive_during_pass(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        """Apply nothing before a pass is settled."""
        return self.inner.receive_during_pass(messages, now)

    def next(self, now: float) -> DraftBatch | None:
        """Return the next pass."""
        return self.inner.next(now)

    def settle(self, step: DraftBatch, output: Sequence[TopChildren], now: float) -> None:
        """Apply the output of a pass."""
        self.inner.settle(step, output, now)

    def fail(self, step: DraftBatch, detail: str, now: float) -> None:
        """Close the sessions whose pass could not be run."""
        self.inner.fail(step, detail, now)

    def max_wait(self, now: float) -> float | None:
        """Return None: a draft waits for messages alone."""
        return self.inner.max_wait(now)

    def report(self) -> EngineReport:
        """Return the counters so far."""
        return self.inner.report()

    def _count(self, link: int, commit: Commit) -> None:
        session = self.inner.sessions.live.get((link, commit.session))
        if session is not None:
            nodes, count = session.tree.nodes, len(session.tree)
            path = descend(nodes.parent, nodes.token, count, commit.tokens)
            self.commits += 1
            self.fall_ins += len(path) == len(commit.tokens)


class RecomputingDraft(MirroredDraft):
    """A draft that loses, at each commit, all KV behind the old root, as if it were not moved.

    Tokens and estimates of the tree stay; before it grows on, one pass computes the KV of the
    committed tokens and of every node that had some. That is what the evolving tree cache of
    SwiftSpec (arXiv 2506.11309, section 3.3) spares, and nothing else is different.
    """

    def __init__(self, inner: DraftScheduler) -> None:
        super().__init__(inner)
        self._since: dict[Key, int] = {}
        """Positions behind which KV is lost."""

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """Apply one message; note what a commit makes the draft lose."""
        if isinstance(message, Commit):
            self._since.setdefault((link, message.session), message.position)
        super().apply(link, message, now)

    def next(self, now: float) -> DraftBatch | None:
        """Return the pass that computes what was lost, before any other."""
        while self._since:
            key, since = self._since.popitem()
            session = self.inner.sessions.live.get(key)
            if session is None or not self.inner.sessions.extend(session):
                continue
            batch = recomputation(session, since, now)
            if batch is not None:
                self.inner.send_buffer.flush()  # as before every long pass
                self.recomputed += batch.rows.count - session.uncomputed_tokens
                return batch
        return super().next(now)


def recomputation(session: DraftSession, since: int, now: float) -> DraftBatch | None:
    """Return a pass over what has KV behind position `since`, and over the suffix without any.

    None where nothing has: what is missing is then prefilled as usual. Children are wanted of a
    root that has not run. Rows beyond the most that a pass holds, and those of a block that was
    just published, keep their KV.
    """
    tree, root = session.tree, session.tree.root_position
    if tree.cached <= since + 1:
        return None
    first = max(since + 1, session.block_table.published * BLOCK)
    path = np.arange(first, root + 1, dtype=np.int32)
    nodes = tree.nodes
    kept = np.flatnonzero(nodes.slot != UNEXPANDED)[: ROW_CAPACITY - len(path)]
    offsets = np.concatenate([path, nodes.slot[kept]])
    if not len(offsets):
        return None
    missing = session.uncomputed_tokens
    end = np.array([root] if missing else [], np.int32)
    leaves = np.full(len(end), ROOT, np.int32)
    rows = Rows(
        tokens=np.concatenate([session.tokens[path], nodes.token[kept]]),
        positions=np.concatenate([path, root + nodes.depth[kept]]).astype(np.int32),
        slots=session.block_table.writable(offsets),
        sequence=np.zeros(len(offsets), np.int32),
        prefix=np.concatenate([path + 1, np.full(len(kept), root + 1)]).astype(np.int32),
        ancestors=_ancestors(tree, len(path), kept),
        depth=np.concatenate([np.zeros(len(path)), nodes.depth[kept]]).astype(np.int32),
        outputs=np.array([len(path) - 1] if missing else [], np.int32),
        tables=session.block_table.table[None],
    )
    adjusts = session.rules.adjuster is not None
    path_tokens = tree.path_tokens(leaves) if adjusts and missing else NO_PATH
    query = ChildQuery(session.rules, end + np.int32(1), path_tokens)
    part = DraftPart(session, missing, leaves, end, query)
    return DraftBatch((part,), rows, rows.count, now)


def _ancestors(tree: DraftTree, before: int, kept: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return int32[before + kept, deepest] offsets of each node's path; none for those before."""
    nodes = tree.nodes
    deepest = int(nodes.depth[kept].max(initial=1))
    found = np.zeros((before + len(kept), deepest), np.int32)
    for row, node in enumerate(kept.tolist(), start=before):
        for level in range(nodes.depth[node] - 1, -1, -1):
            found[row, level] = nodes.slot[node]
            node = nodes.parent[node]
    return found
