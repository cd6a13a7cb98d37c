"""Walk of a sequence's tree along the target's choices: the commit that follows, and row fates.

Leaves the records that tell the stages, and all books, to `leader`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from outrider.worker.messages import Finish, TokenLogprob
from outrider.worker.pipeline.records import FORM_BROKEN, Results
from outrider.worker.pipeline.sequence import KVPlacement, PipelinedSequence, Sampled, SentRow
from outrider.worker.speculation.acceptance import first_child_surplus, outcomes
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.tree.mirror import DRAFT
from outrider.worker.tree.walk import DEAD, ROOT, child_of, contains, survivors

NO_TOKEN = -1


class KnownChoices(NamedTuple):
    """Choices that can be committed, as far as they are known."""

    sampled: list[Sampled]
    """The root's first; empty while that is not back."""
    path: list[int]
    """Nodes that the first of them match; none for the last if it has no node."""
    finish: Finish | None
    """Reason why the sequence ends with the last of them."""

    @property
    def fall_in(self) -> bool:
        """True if the new root is in the tree."""
        return len(self.path) == len(self.sampled)


class Rerooted(NamedTuple):
    """Rows whose fate a commit decides."""

    promoted: list[SentRow]
    """Rows of nodes that are committed, by position; a live root is the last."""
    dead: list[SentRow]
    """Rows of nodes that are gone."""


def walk(sequence: PipelinedSequence) -> KnownChoices:
    """Follow the choices from the root, through rows that are back, to the end of what is known."""
    mirror, node = sequence.mirror, ROOT
    sampled: list[Sampled] = []
    path: list[int] = []
    finish = None
    while node != DEAD and finish is None:
        row = sequence.kv.row_of(node)
        if row is None or row.sampled is None:
            break
        sampled.append(row.sampled)
        finish = _finish(sequence, row.sampled.token, len(sampled))
        if finish is None:
            token = row.sampled.token
            node = child_of(mirror.parent, mirror.token, len(mirror), node, token)
            if node != DEAD:
                path.append(node)
    return KnownChoices(sampled, path, finish)


def _finish(sequence: PipelinedSequence, token: int, count: int) -> Finish | None:
    """Return why a sequence ends with its next `count`-th token, if it does."""
    if token < 0:
        return Finish.GRAMMAR_FAILED if token == FORM_BROKEN else Finish.FAILED
    if contains(sequence.ends, token):
        return Finish.STOP
    return Finish.LENGTH if count == sequence.remaining else None


def commit(sequence: PipelinedSequence, done: KnownChoices) -> Rerooted:
    """Commit the tokens of a walk that ends nothing; the survivors' rows stay on their way."""
    mirror, placed = sequence.mirror, sequence.kv
    tokens = np.array([one.token for one in done.sampled], np.int32)
    path = np.array(done.path, np.int32)
    sequence.calibration.learn(mirror, path[: len(tokens) - 1], tokens)
    renumbered = survivors(mirror.parent, len(mirror), path, len(tokens))
    rerooted = reroot(placed, done.path, renumbered.tolist())
    placed.root = rerooted.promoted[-1] if _root_has_left(done, rerooted) else None
    if placed.root is not None:
        sequence.served = placed.root.segment
    placed.computed = sequence.length
    placed.sent = sequence.length + len(rerooted.promoted)
    mirror.commit(tokens)
    sequence.length += len(tokens)
    return rerooted


def _root_has_left(done: KnownChoices, rerooted: Rerooted) -> bool:
    return done.fall_in and len(rerooted.promoted) == len(done.path)


def reroot(placed: KVPlacement, path: list[int], renumbered: list[int]) -> Rerooted:
    """Give the survivors' rows their new nodes; return the others.

    `renumbered` [nodes] as of `tree.walk.survivors`.
    """
    old = {node: row for node, row in enumerate(placed.rows) if row is not None}
    promoted = [old.pop(node) for node in path if node in old]
    placed.rows = [None] * (max(renumbered, default=DEAD) + 1)
    dead: list[SentRow] = []
    for node, row in old.items():
        if renumbered[node] == DEAD:
            dead.append(row)
        else:
            placed.rows[renumbered[node]] = row
    return Rerooted(promoted, dead)


def record_of(sequence: PipelinedSequence, done: KnownChoices) -> PassRecord[PipelinedSequence]:
    """Return what a walk commits; call it before the commit."""
    mirror, row_of, count = sequence.mirror, sequence.kv.row_of, len(sequence.mirror)
    tokens = np.array([one.token for one in done.sampled], np.int32)
    path = np.array(done.path[: len(tokens) - 1], np.int32)
    of_draft = np.flatnonzero((mirror.parent == ROOT) & (mirror.proposer == DRAFT)).tolist()
    children = [node for node in of_draft if row_of(node) is not None]
    likeliest = max(children, key=lambda node: float(mirror.logprob[node]), default=None)
    sources, surplus = sequence.new_rows([row_of(node) for node in done.path]), 0.0
    if count:
        nodes = mirror.tables.nodes
        surplus = float(first_child_surplus(nodes, outcomes(nodes, count, path, tokens)))
    return PassRecord(
        sequence,
        computed=1,
        nodes=sources.total,
        live=count,
        first_token=NO_TOKEN if likeliest is None else int(mirror.token[likeliest]),
        in_session=sequence.session is not None,
        sources=sources,
        accepted=sum(sources.accepted),
        tokens=tokens[tokens >= 0],
        survived=done.fall_in,
        surplus=surplus,
        finish=done.finish,
    )


def sampled_after(results: Results, at: int) -> Sampled:
    """Return what was sampled after one row."""
    token, logprob = int(results.tokens[at]), float(results.logprobs[at])
    if np.isnan(logprob):
        return Sampled(token)
    pairs = zip(results.top_tokens[at].tolist(), results.top_logprobs[at].tolist(), strict=True)
    return Sampled(token, TokenLogprob(logprob, tuple(pair for pair in pairs if pair[0] >= 0)))


def row_fates(
    rows: Sequence[SentRow | None], path: Sequence[int]
) -> tuple[list[SentRow], list[SentRow]]:
    """Return the rows of a sequence's last path, and those of all other nodes; `rows` by node."""
    sent = [(node in path, row) for node, row in enumerate(rows) if row is not None]
    return [row for kept, row in sent if kept], [row for kept, row in sent if not kept]
