"""Arrays that one sequence's passes write: candidates, rows, accepted rows and committed tokens.

Laid out once for a sequence, so that a pass makes no arrays and no objects of them: what was handed
out for so many rows is handed out again (docs/decisions/0028). Leaves what is written to
`target/tree_pass`.
"""

from typing import Any, NamedTuple

import numpy as np

from outrider.contract.settings import MAX_DEPTH, MAX_NODE_ROWS
from outrider.contract.sources import SOURCES
from outrider.worker.messages import PassTree
from outrider.worker.model.rows import Rows
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.speculation.planner import NodeCandidates
from outrider.worker.speculation.wait import MOST_GROWTHS
from outrider.worker.tree.growth import Floats, Ids, Ints
from outrider.worker.tree.mirror_table import DRAFT

MAX_ROWS = 1 + MAX_NODE_ROWS
"""The root's and its nodes'."""


class PassArrays(NamedTuple):
    """All of them; `candidate` to `candidate_depth` by candidate, the others by row."""

    candidate: Ints
    reach: Floats
    candidate_depth: Ints
    next_reaches: Floats
    """[MOST_GROWTHS] chances of the draft's next nodes, as `wait.next_reaches` has them."""
    tokens: Ints
    positions: Ints
    slots: Ints
    prefix: Ints
    depth: Ints
    ancestors: Ints
    """[rows, deepest] offsets, of which each row's `depth` are in use."""
    accepted: Ints
    committed: Ints
    source: Ints
    """What proposed each row's node; the root's is not in use."""
    source_rows: Ids
    """Node rows of the pass that was settled last, [sources]."""
    source_accepted: Ids
    """Accepted node rows of the pass that was settled last, [sources]."""

    @classmethod
    def empty(cls, nodes: int) -> "PassArrays":
        """Return arrays for a mirror of so many nodes."""
        candidate, candidate_depth = (np.zeros(nodes, np.int32) for _ in range(2))
        tokens, positions, slots, prefix, depth = (np.zeros(MAX_ROWS, np.int32) for _ in range(5))
        accepted, committed, source = (np.zeros(MAX_ROWS, np.int32) for _ in range(3))
        source_rows, source_accepted = (np.zeros(len(SOURCES), np.int64) for _ in range(2))
        return cls(
            candidate,
            np.zeros(nodes, np.float32),
            candidate_depth,
            np.zeros(MOST_GROWTHS, np.float32),
            tokens,
            positions,
            slots,
            prefix,
            depth,
            np.zeros((MAX_ROWS, MAX_DEPTH), np.int32),
            accepted,
            committed,
            source,
            source_rows,
            source_accepted,
        )


class PassViews:
    """What is in use of `PassArrays`, until it is written again: candidates by the next ranking,
    which may come while a pass runs, all else by the sequence's next pass."""

    def __init__(self, arrays: PassArrays) -> None:
        self._arrays = arrays
        self._candidates: dict[int, NodeCandidates] = {}
        self._rows: dict[int, Rows] = {}
        self._table: Ints | None = None
        """Block table that all of `_rows` have."""
        self._source_rows: Any = memoryview(arrays.source_rows.data)  # read faster than the array
        self._sequence = np.zeros(MAX_ROWS, np.int32)
        self._outputs = np.arange(MAX_ROWS, dtype=np.int32)

    def candidates(self, count: int) -> NodeCandidates:
        """Return the first `count` candidates."""
        found = self._candidates.get(count)
        if found is None:
            a = self._arrays
            found = NodeCandidates(a.candidate[:count], a.reach[:count], a.candidate_depth[:count])
            self._candidates[count] = found
        return found

    @property
    def next_reaches(self) -> Floats:
        """Chances of the draft's next nodes, as of the last ranking."""
        return self._arrays.next_reaches

    def rows(self, count: int, table: Ints) -> Rows:
        """Return the first `count` rows, whose KV is where `table` int32[blocks] says."""
        if table is not self._table:
            self._rows.clear()
            self._table = table
        rows = self._rows.get(count)
        if rows is None:
            rows = self._rows[count] = self._view(count, table)
        return rows

    def accepted(self, count: int) -> Ints:
        """Return the first `count` accepted rows."""
        return self._arrays.accepted[:count]

    def committed(self, count: int) -> Ints:
        """Return the first `count` committed tokens."""
        return self._arrays.committed[:count]

    def tree(self, nodes: int, accepted: int) -> PassTree:
        """Return what the last pass verified: so many nodes, so many of them accepted."""
        arrays, root = self._arrays, self._arrays.positions.item(0)

        def parent(row: int) -> int:
            depth = arrays.depth.item(row)
            return 0 if depth == 1 else arrays.ancestors.item(row, depth - 2) - root

        return PassTree(
            tokens=tuple(arrays.tokens[: 1 + nodes].tolist()),
            parents=tuple(map(parent, range(1, 1 + nodes))),
            accepted=tuple((arrays.accepted[:accepted] + 1).tolist()),
            following=arrays.committed.item(accepted),
        )

    @property
    def rows_of_draft(self) -> int:
        """Node rows of the last pass that the draft proposed."""
        return int(self._source_rows[DRAFT])

    @property
    def sources(self) -> SourceRows:
        """Node rows of the last pass by what proposed them."""
        return SourceRows(self._source_rows.tolist(), self._arrays.source_accepted.tolist())

    def _view(self, count: int, table: Ints) -> Rows:
        a = self._arrays
        return Rows(
            tokens=a.tokens[:count],
            positions=a.positions[:count],
            slots=a.slots[:count],
            sequence=self._sequence[:count],
            prefix=a.prefix[:count],
            ancestors=a.ancestors[:count],
            depth=a.depth[:count],
            outputs=self._outputs[:count],
            tables=table[None],
        )
