"""The batch of one draft pass: prefill of sessions, and the best leaves of others.

Shares out the rows of a pass among sessions in a given order. Leaves the order, and KV for the
rows, to `scheduler`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import ChildQuery
from outrider.worker.model.rows import Int32, Rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.growth import Ints

PREFILL_ROWS = 64
"""Rows of prefill in one pass."""
LEAF_ROWS = 32
"""Leaves of all sessions together that one pass expands: beyond it, those that wait for the pass
lose more than its rows share."""
MIN_LEAF_ROWS = 16
"""Leaf rows of a pass that prefill never takes: a long prompt stops no other tree."""
MAX_WIDTH = 64
"""Most leaves of one session that one pass expands."""


class PassRows(NamedTuple):
    """Most rows of one pass; the defaults are for two processors."""

    prefill: int = PREFILL_ROWS
    leaves: int = LEAF_ROWS
    """Most leaves of all sessions together."""


@dataclass(frozen=True, slots=True)
class DraftPart:
    """One session's rows; `leaves` is empty for a chunk that does not reach the root."""

    session: DraftSession
    count: int
    """Rows."""
    leaves: Ints
    offsets: Ints
    """[leaves] offsets of their KV."""
    query: ChildQuery

    @property
    def computes_text(self) -> bool:
        """True if it is of a text that the draft has to compute before it is of any use."""
        return self.session.returns or self.session.tree.last_id == 0


class DraftBatch(NamedTuple):
    """Rows of one pass, by session."""

    parts: Sequence[DraftPart]
    rows: Rows
    """Rows of all parts, in their order; valid until the next batch is made."""
    prefill: int
    """Most rows of prefill of a part; 0: all rows expand leaves."""
    started: float


def batch_of(
    sessions: Iterable[DraftSession],
    pass_rows: DraftRows,
    now: float,
    most: PassRows,
    least: float = -math.inf,
) -> DraftBatch | None:
    """Return the rows of sessions, in this order, while there is room; None if there are none.

    `pass_rows` has room for `most`; `least`: score of leaves as of `DraftTree.expand`.
    """
    spans = list(_write(sessions, pass_rows, most, least))
    columns = pass_rows.take()
    if not spans:
        return None
    prefill = max([count if session.needs_prefill else 0 for session, count, _ in spans])
    parts, end = [], 0
    for session, count, outputs in spans:
        begin, end = end, end + outputs
        alone = outputs == len(columns.leaf)
        parts.append(_part(session, count, columns if alone else _between(columns, begin, end)))
    rows = Rows(
        tokens=columns.token,
        positions=columns.position,
        slots=columns.slot,
        sequence=columns.tree,
        prefix=columns.prefix,
        ancestors=columns.ancestors,
        depth=columns.depth,
        outputs=columns.output,
        tables=_tables([session for session, _, _ in spans]),
    )
    return DraftBatch(parts, rows, prefill, now)


def _write(
    sessions: Iterable[DraftSession], rows: DraftRows, most: PassRows, least: float
) -> Iterator[tuple[DraftSession, int, int]]:
    """Write the rows of each session while there is room; yield it, its rows and its outputs."""
    prefill, leaves = most
    for session in sessions:
        if session.needs_prefill:
            count = session.tree.prefill(rows, session.block_table, session.tokens, prefill)
            outputs = int(count == session.uncomputed_tokens)
            leaves = max(leaves - count, min(MIN_LEAF_ROWS, most.leaves))
        elif leaves:
            width = min(session.limits.width, MAX_WIDTH, leaves)
            count = outputs = session.tree.expand(
                rows, session.block_table, width, session.depth_limit, least
            )
            leaves -= count
        else:
            continue
        prefill = max(prefill - count, 0)
        if count:
            yield session, count, outputs


def _between(columns: RowColumns, begin: int, end: int) -> RowColumns:
    """Return the columns with some of their outputs."""
    return columns._replace(
        leaf=columns.leaf[begin:end],
        offset=columns.offset[begin:end],
        sampled_at=columns.sampled_at[begin:end],
    )


def _part(session: DraftSession, count: int, columns: RowColumns) -> DraftPart:
    """Return a session's part; `columns` have its outputs alone."""
    adjusts = session.rules.adjuster is not None
    path_tokens = session.tree.path_tokens(columns.leaf) if adjusts else NO_PATH
    query = ChildQuery(session.rules, columns.sampled_at, path_tokens)
    return DraftPart(session, count, columns.leaf, columns.offset, query)


def _tables(sessions: Sequence[DraftSession]) -> Int32:
    """Return the block tables, a line each."""
    tables = [session.block_table.table for session in sessions]
    if len(tables) == 1:
        return tables[0][None]
    lines = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for line, table in zip(lines, tables, strict=True):
        line[: len(table)] = table
    return lines
