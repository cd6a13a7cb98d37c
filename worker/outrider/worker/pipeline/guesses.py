"""Guesses of a sequence's tree about the tokens that a result has decided."""

from typing import NamedTuple

import numpy as np

from outrider.contract.sources import SOURCES
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.walk import Walk
from outrider.worker.speculation.acceptance import first_child_surplus
from outrider.worker.tree.mirror import DRAFT
from outrider.worker.tree.walk import ROOT

NO_TOKEN = -1


class Guesses(NamedTuple):
    """What the tree was worth at one commit."""

    nodes: int
    """Live nodes before it;"""
    drafted: int
    """of them, those of drafts."""
    accepted: tuple[int, ...]
    """Tokens whose node had a row, by what it was sent for."""
    first: int
    """Likeliest token after the root, of a draft's node that had a row; `NO_TOKEN`: none had."""
    surplus: float
    """The `first_child_surplus` of the rows that decided."""


NOTHING = Guesses(0, 0, (0,) * len(SOURCES), NO_TOKEN, 0.0)
"""Of a tree without nodes."""


def guesses(sequence: PipelinedSequence, done: Walk) -> Guesses:
    """Return the guesses about what a walk commits; call it before the commit."""
    mirror, row_of = sequence.mirror, sequence.kv.row_of
    count = len(mirror)
    if count == 0:
        return NOTHING
    tokens = np.array([one.token for one in done.sampled], np.int32)
    path = np.array(done.path[: len(tokens) - 1], np.int32)
    of_draft = mirror.proposer == DRAFT
    first = np.flatnonzero((mirror.parent == ROOT) & of_draft).tolist()
    children = [node for node in first if row_of(node) is not None]
    likeliest = max(children, key=lambda node: float(mirror.logprob[node]), default=None)
    accepted = [0] * len(SOURCES)
    for row in map(row_of, done.path):
        if row is not None:
            accepted[row.source] += 1
    return Guesses(
        nodes=count,
        drafted=int(np.count_nonzero(of_draft)),
        accepted=tuple(accepted),
        first=NO_TOKEN if likeliest is None else int(mirror.token[likeliest]),
        surplus=float(first_child_surplus(mirror.tables.nodes, count, path, tokens)),
    )
