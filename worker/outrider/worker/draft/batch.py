"""The batch of one draft pass: prefill of sessions, and the best leaves of others.

Shares out the rows of a pass among sessions in a given order. Leaves the order, and KV for the
rows, to `scheduler`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import ChildQuery
from outrider.worker.model.rows import Rows, prompt_rows, tree_rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import ROOT

PREFILL_ROWS = 64
"""Rows of prefill in one pass."""
LEAF_ROWS = 32
"""Leaves of all sessions together that one pass expands: beyond it, those that wait for the pass
lose more than its rows share."""
MIN_LEAF_ROWS = 16
"""Of those, the ones that prefill never takes: a long prompt stops no other tree."""
BRANCH = 8
"""Top children of each expanded leaf."""
MAX_WIDTH = 64
"""Most leaves of one session that one pass expands."""
ROOT_LEAF = np.array([ROOT], np.int32)


@dataclass(frozen=True, slots=True)
class DraftPart:
    """One session's rows; `leaves` is empty for a chunk that does not reach the root."""

    session: DraftSession
    leaves: Ints
    offsets: Ints
    """[leaves] slots of their KV."""
    query: ChildQuery


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """Rows of one pass, by session."""

    parts: Sequence[DraftPart]
    rows: Rows
    """Of all parts, in their order."""
    started: float


def parts_of(
    sessions: Iterable[DraftSession], allowed: Mapping[int, NDArray[np.bool_]]
) -> Iterator[DraftPart]:
    """Yield each session's part of a pass, in this order, while there is room for rows.

    `allowed`: by link, [vocabulary] ids that a draft may propose.
    """
    prefill, leaves = PREFILL_ROWS, LEAF_ROWS
    for session in sessions:
        if session.needs_prefill:
            part = _prefill(session, prefill, allowed[session.link]) if prefill > 0 else None
        else:
            part = _expand(session, leaves, allowed[session.link]) if leaves > 0 else None
        if part is None:
            continue
        count = part.query.rows.count
        prefill -= count
        leaves -= count
        if session.needs_prefill:
            leaves = max(leaves, MIN_LEAF_ROWS)
        yield part


def _prefill(session: DraftSession, most: int, allowed: NDArray[np.bool_]) -> DraftPart:
    """Return rows of committed tokens without KV; if they reach the root, query its children."""
    start = session.tree.cached
    end = min(start + most, session.length)
    last = end == session.length
    rows = prompt_rows(session.tokens[start:end], start, session.block_table, wants_output=last)
    leaves = ROOT_LEAF if last else ROOT_LEAF[:0]
    offsets = np.full(len(leaves), session.tree.root_position, np.int32)
    return DraftPart(session, leaves, offsets, _child_query(session, rows, leaves, allowed))


def _expand(session: DraftSession, most: int, allowed: NDArray[np.bool_]) -> DraftPart:
    """Return the rows of a session's best leaves."""
    leaves = session.leaves(min(session.limits.width, MAX_WIDTH, most))
    rows = session.tree.rows(leaves)
    batch_rows = tree_rows(
        tokens=rows.tokens,
        offsets=rows.slots,
        block_table=session.block_table,
        prefix=rows.prefix,
        ancestors=rows.ancestors,
        depth=rows.positions - np.int32(session.tree.root_position),
    )
    query = _child_query(session, batch_rows, leaves, allowed)
    return DraftPart(session, leaves, rows.slots, query)


def _child_query(
    session: DraftSession, rows: Rows, leaves: Ints, allowed: NDArray[np.bool_]
) -> ChildQuery:
    adjuster = session.adjuster
    return ChildQuery(
        rows=rows,
        sampling=session.sampling,
        error_scale=session.limits.error_scale,
        branch=BRANCH,
        allowed=allowed,
        adjuster=adjuster,
        path_tokens=NO_PATH if adjuster is None else session.tree.path_tokens(leaves),
    )
