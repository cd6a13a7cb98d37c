"""What a pipelined target's results decide: tokens of a sequence, and the fate of its rows.

Pure. Leaves walks to `walk`, records and books to `leader`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.worker.messages import Finish, TokenLogprob
from outrider.worker.pipeline.guesses import Guesses, guesses
from outrider.worker.pipeline.records import Ints, Results
from outrider.worker.pipeline.sent_row import Sampled, SentRow
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.walk import Walk


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """Tokens of one sequence that a result has decided."""

    request: int
    position: int
    """Of the root before them."""
    tokens: Ints
    """int32[n]; none where a sequence fails at its root."""
    fall_in: bool
    """True if the new root was in the tree."""
    logprobs: tuple[TokenLogprob, ...]
    """Of each token, if the request asks for them."""
    finish: Finish | None
    """Reason for which the sequence ends here; None: it goes on."""
    guesses: Guesses
    """Of the tree before them."""


def committed_by(sequence: PipelinedSequence, done: Walk) -> Committed:
    """Return what a walk commits; call it before the commit."""
    kept = [one for one in done.sampled if one.token >= 0]
    return Committed(
        request=sequence.submit.request,
        position=sequence.position,
        tokens=np.array([one.token for one in kept], np.int32),
        fall_in=done.fall_in,
        logprobs=tuple(one.logprob for one in kept if one.logprob is not None),
        finish=done.finish,
        guesses=guesses(sequence, done),
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
