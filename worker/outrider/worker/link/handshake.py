"""Who may pair with whom: what each side says of itself in Hello, and the check of the other's.

A refusal is a `PairRefused` that says why; the vocabulary's hashes come from
`outrider.worker.model.vocabulary`.
"""

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.messages import Identity
from outrider.worker.model import vocabulary
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.vocabulary import VOCABULARY_BLOCK, agreement

PROTOCOL_VERSION = 1
MAX_VOCABULARY_BLOCKS = 1 << 16


def hello(identity: Identity) -> pb.Hello:
    """The first message of either direction."""
    return pb.Hello(
        protocol_min=PROTOCOL_VERSION,
        protocol_max=PROTOCOL_VERSION,
        revision=identity.revision,
        incarnation=identity.incarnation,
        context_length=identity.context,
        vocabulary_size=identity.vocabulary,
        vocabulary_block=VOCABULARY_BLOCK,
        vocabulary_hashes=identity.hashes.tolist(),
        vocabulary_outputs=identity.outputs,
        capacity=pb.Capacity(
            sessions=identity.sessions, tokens=identity.sessions * identity.context
        ),
    )


def hello_from_draft(payload: bytes) -> pb.Hello:
    """The draft's first message; raises `ProtocolViolation` if it is none."""
    return _hello(pb.DraftMessage(), payload)


def hello_from_target(payload: bytes) -> pb.Hello:
    """The target's first message; raises `ProtocolViolation` if it is none."""
    return _hello(pb.TargetMessage(), payload)


def agreed_by_target(own: Identity, draft: pb.Hello) -> NDArray[np.bool_]:
    """[own vocabulary] ids that the draft may guess; raises `PairRefused`."""
    _check_protocol(draft)
    outputs = _counts(draft.vocabulary_outputs[:MAX_VOCABULARY_BLOCKS])
    return _mask(agreement(own.hashes, _hashes(draft), outputs).agreed, own.vocabulary)


def agreed_by_draft(own: Identity, target: pb.Hello) -> NDArray[np.bool_]:
    """[target's vocabulary] ids that this draft may guess; raises `PairRefused`."""
    _check_protocol(target)
    size = min(target.vocabulary_size, MAX_VOCABULARY_BLOCKS * VOCABULARY_BLOCK)
    agreed = agreement(_hashes(target), own.hashes, _counts(own.outputs)).agreed
    return _mask(agreed, size)


def agreed_between(target: PreparedModel, draft: PreparedModel) -> NDArray[np.bool_]:
    """[target's tokens] ids that a draft in the same process may guess; raises `PairRefused`."""
    tokens = guesses = vocabulary.read(target)
    hashes = guessed = vocabulary.block_hashes(tokens)
    if draft.tokenizer != target.tokenizer:  # else it is borrowed: one map, read and hashed once
        guesses = vocabulary.read(draft)
        guessed = vocabulary.block_hashes(guesses)
    outputs = vocabulary.outputs_by_block(draft.config().output_ids, len(guesses))
    return _mask(agreement(hashes, guessed, _counts(outputs)).agreed, len(tokens))


def _hello(message: pb.DraftMessage | pb.TargetMessage, payload: bytes) -> pb.Hello:
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    if message.WhichOneof("body") != "hello":
        raise ProtocolViolation("the first message of a stream must be Hello")
    return message.hello


def _check_protocol(peer: pb.Hello) -> None:
    if not peer.protocol_min <= PROTOCOL_VERSION <= peer.protocol_max:
        raise PairRefused(
            f"protocol versions {peer.protocol_min} to {peer.protocol_max} do not include "
            f"{PROTOCOL_VERSION}, the one spoken here"
        )
    if peer.vocabulary_block != VOCABULARY_BLOCK:
        raise PairRefused(
            f"vocabulary hashed in blocks of {peer.vocabulary_block}, here {VOCABULARY_BLOCK}"
        )


def _hashes(peer: pb.Hello) -> NDArray[np.uint64]:
    return np.array(peer.vocabulary_hashes[:MAX_VOCABULARY_BLOCKS], np.uint64)


def _counts(outputs: Sequence[int]) -> NDArray[np.int64] | None:
    """[blocks] ids that a draft can output; None, all of them, where it names none."""
    return np.array(outputs, np.int64) if outputs else None


def _mask(blocks: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """One flag for each id from one for each block."""
    ids = np.repeat(blocks, VOCABULARY_BLOCK)[:size]
    return np.concatenate([ids, np.zeros(size - len(ids), np.bool_)])
