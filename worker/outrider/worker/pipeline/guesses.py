"""Guesses of a sequence's tree about the tokens that a result has decided."""

from typing import NamedTuple

import numpy as np

from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.walk import Walk
from outrider.worker.speculation.acceptance import first_child_surplus
from outrider.worker.tree.walk import ROOT

NO_TOKEN = -1


class Guesses(NamedTuple):
    """What the tree was worth at one commit."""

    nodes: int
    """Live nodes before it."""
    accepted: int
    """Tokens whose node had a row."""
    first: int
    """Likeliest token after the root whose node had a row; `NO_TOKEN`: there was none."""
    surplus: float
    """The `first_child_surplus` of the rows that decided."""


def guesses(sequence: PipelinedSequence, done: Walk) -> Guesses:
    """Return the guesses about what a walk commits; call it before the commit."""
    mirror, row_of = sequence.mirror, sequence.kv.row_of
    count = len(mirror)
    if count == 0:
        return Guesses(0, 0, NO_TOKEN, 0.0)
    tokens = np.array([one.token for one in done.sampled], np.int32)
    path = np.array(done.path[: len(tokens) - 1], np.int32)
    children = [n for n in np.flatnonzero(mirror.parent == ROOT).tolist() if row_of(n) is not None]
    likeliest = max(children, key=lambda node: float(mirror.logprob[node]), default=None)
    return Guesses(
        nodes=count,
        accepted=sum(row_of(node) is not None for node in done.path),
        first=NO_TOKEN if likeliest is None else int(mirror.token[likeliest]),
        surplus=float(first_child_surplus(mirror.tables.nodes, count, path, tokens)),
    )
