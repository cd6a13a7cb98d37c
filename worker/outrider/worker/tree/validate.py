"""Checks what a draft sent before the mirror sees it (speculation.md).

Leaves closing the session, and bounds on message size and rate, to the link.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.compiled import njit
from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import Floats, Ids, Ints

ROUNDING = 1e-3
"""How far above 0 a log-probability may be; the mirror takes it as 0."""
ANY_TOKEN = np.ones(0, np.bool_)
"""No mask: every token of the vocabulary is agreed."""

_FINE, _PARENT, _TOKEN, _MASKED, _LOGPROB = range(5)
_FAULTS = {
    _PARENT: "parent {parent} of node {id} is not an id before it",
    _TOKEN: "token {token} of node {id} is outside the vocabulary of {vocabulary}",
    _MASKED: "token {token} of node {id} is one on which the tokenizers differ",
    _LOGPROB: "log-probability {logprob} of node {id} is not finite and at most 0",
}


def check_growth(
    mirror: Mirror,
    root_position: int,
    first_id: int,
    parents: Ids,
    tokens: Ints,
    logprobs: Floats,
    *,
    vocabulary: int,
    granted: int,
    agreed: NDArray[np.bool_] = ANY_TOKEN,
) -> None:
    """Raises `ProtocolViolation` unless an honest draft could have sent this.

    Unsigned numbers of the wire may be reinterpreted as signed: what overflows is negative, and so
    refused. `granted` is the highest nodes-ahead ever granted to the session, `vocabulary` the
    number of token ids, `agreed` bool[vocabulary] the ids that mean the same on both sides.
    """
    nodes = len(parents)
    if len(tokens) != nodes or len(logprobs) != nodes:
        raise ProtocolViolation(
            f"{nodes} parents, {len(tokens)} tokens and {len(logprobs)} log-probabilities"
        )
    if nodes > granted:
        raise ProtocolViolation(f"{nodes} nodes in one message; {granted} were granted")
    if not mirror.acknowledged <= root_position <= mirror.root_position:
        raise ProtocolViolation(
            f"root position {root_position} is not from {mirror.acknowledged}, the last one heard "
            f"of, to {mirror.root_position}, the target's"
        )
    if nodes and not mirror.last_id < first_id < 2**62:
        raise ProtocolViolation(f"id {first_id} does not follow id {mirror.last_id}")
    fault, node = _first_fault(first_id, parents, tokens, logprobs, vocabulary, agreed)
    if fault != _FINE:
        values = {"parent": parents[node], "token": tokens[node], "logprob": logprobs[node]}
        raise ProtocolViolation(
            _FAULTS[fault].format(id=first_id + node, vocabulary=vocabulary, **values)
        )


@njit()
def _first_fault(
    first_id: int,
    parents: Ids,
    tokens: Ints,
    logprobs: Floats,
    vocabulary: int,
    agreed: NDArray[np.bool_],
) -> tuple[int, int]:
    for node in range(parents.shape[0]):
        if not 0 <= parents[node] < first_id + node:
            return _PARENT, node
        if not 0 <= tokens[node] < vocabulary:
            return _TOKEN, node
        if tokens[node] < agreed.shape[0] and not agreed[tokens[node]]:
            return _MASKED, node
        if not (np.isfinite(logprobs[node]) and logprobs[node] <= ROUNDING):
            return _LOGPROB, node
    return _FINE, 0
