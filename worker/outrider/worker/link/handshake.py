"""Handshake of a target and a draft: each side's Hello, and the check of the other's.

A refusal is a `PairRefused` with a reason; the vocabulary's hashes come from
`outrider.worker.checkpoints.vocabulary`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.vocabulary import VOCABULARY_BLOCK, agreement
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.link.payloads import parsed
from outrider.worker.link.records import VERSION
from outrider.worker.messages import Identity, Room

MAX_VOCABULARY_BLOCKS = 1 << 16
MEMORY, DISTRIBUTED = pb.LINK_TRANSPORT_SHARED_MEMORY, pb.LINK_TRANSPORT_DISTRIBUTED


@dataclass(frozen=True, slots=True)
class TargetHello:
    """A target's Hello that the draft has accepted."""

    allowed: NDArray[np.bool_]
    """[target's vocabulary] the ids that this draft may propose."""
    shares_memory: bool
    """It can share memory with a draft that says the same."""
    distributed: bool = False
    """It joins a draft that says the same in torch.distributed."""


@dataclass(frozen=True, slots=True)
class DraftHello:
    """A draft's Hello that the target has accepted."""

    revision: str
    incarnation: int
    room: Room
    allowed: NDArray[np.bool_]
    """[own vocabulary] ids on which both tokenizers agree."""
    meeting: pb.Meeting | None = None
    """Where it takes memory to share; None: it shares none."""
    distributed: bool = False
    """It joins a target that says the same in torch.distributed."""


def hello_to_draft(identity: Identity) -> bytes:
    """Return the first message of a target's stream."""
    return pb.TargetMessage(hello=_hello(identity)).SerializeToString()


def hello_to_target(identity: Identity, meeting: pb.Meeting | None = None) -> bytes:
    """Return the first message of a draft's stream; `meeting`: where it takes memory."""
    hello = _hello(identity)
    if meeting is not None:
        hello.meeting.CopyFrom(meeting)
    elif identity.shares_memory:
        hello.transports.remove(MEMORY)
    return pb.DraftMessage(hello=hello).SerializeToString()


def _hello(identity: Identity) -> pb.Hello:
    return pb.Hello(
        protocol_min=VERSION,
        protocol_max=VERSION,
        revision=identity.revision,
        incarnation=identity.incarnation,
        context_length=identity.context,
        vocabulary_size=identity.vocabulary,
        vocabulary_block=VOCABULARY_BLOCK,
        vocabulary_hashes=identity.hashes.tolist(),
        vocabulary_outputs=identity.outputs,
        sessions=identity.sessions,
        transports=_transports(identity),
    )


def _transports(identity: Identity) -> "list[pb.LinkTransport.ValueType]":
    if identity.distributed:
        return [DISTRIBUTED]
    return [MEMORY] if identity.shares_memory else []


def accept_draft(own: Identity, payload: bytes) -> DraftHello:
    """Check a draft's first message; raise `ProtocolViolation` or `PairRefused`."""
    draft = _hello_of(parsed(pb.DraftMessage, payload))
    _check_protocol(draft)
    outputs = _counts(draft.vocabulary_outputs[:MAX_VOCABULARY_BLOCKS])
    allowed = _mask(agreement(own.hashes, _hashes(draft), outputs).agreed, own.vocabulary)
    room = Room(draft.sessions, draft.context_length)
    meeting = draft.meeting if MEMORY in draft.transports and draft.HasField("meeting") else None
    return DraftHello(
        draft.revision,
        draft.incarnation,
        room,
        allowed,
        meeting,
        DISTRIBUTED in draft.transports,
    )


def accept_target(own: Identity, payload: bytes) -> TargetHello:
    """Check a target's first message; raise `ProtocolViolation` or `PairRefused`."""
    target = _hello_of(parsed(pb.TargetMessage, payload))
    _check_protocol(target)
    size = min(target.vocabulary_size, MAX_VOCABULARY_BLOCKS * VOCABULARY_BLOCK)
    agreed = agreement(_hashes(target), own.hashes, _counts(own.outputs)).agreed
    return TargetHello(
        _mask(agreed, size), MEMORY in target.transports, DISTRIBUTED in target.transports
    )


def agreed_between(target: PreparedModel, draft: PreparedModel) -> NDArray[np.bool_]:
    """Return bool[target's tokens], the ids that a draft in the same process may propose.

    Raises `PairRefused`.
    """
    tokens = draft_tokens = vocabulary.read(target)
    hashes = draft_hashes = vocabulary.block_hashes(tokens)
    if draft.tokenizer != target.tokenizer:  # else it is borrowed: one map, read and hashed once
        draft_tokens = vocabulary.read(draft)
        draft_hashes = vocabulary.block_hashes(draft_tokens)
    outputs = vocabulary.outputs_by_block(draft.config().output_ids, len(draft_tokens))
    return _mask(agreement(hashes, draft_hashes, _counts(outputs)).agreed, len(tokens))


def _hello_of(message: pb.DraftMessage | pb.TargetMessage) -> pb.Hello:
    if message.WhichOneof("body") != "hello":
        raise ProtocolViolation("the first message of a stream must be Hello")
    return message.hello


def _check_protocol(peer: pb.Hello) -> None:
    if not peer.protocol_min <= VERSION <= peer.protocol_max:
        raise PairRefused(
            f"protocol versions {peer.protocol_min} to {peer.protocol_max} do not include "
            f"{VERSION}, the one spoken here"
        )
    if peer.vocabulary_block != VOCABULARY_BLOCK:
        raise PairRefused(
            f"vocabulary hashed in blocks of {peer.vocabulary_block}, here {VOCABULARY_BLOCK}"
        )


def _hashes(peer: pb.Hello) -> NDArray[np.uint64]:
    return np.array(peer.vocabulary_hashes[:MAX_VOCABULARY_BLOCKS], np.uint64)


def _counts(outputs: Sequence[int]) -> NDArray[np.int64] | None:
    """Return int64[blocks], ids that a draft can output; None, for all, where it names none."""
    return np.array(outputs, np.int64) if outputs else None


def _mask(blocks: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """Expand one flag for each block into one for each id."""
    ids = np.repeat(blocks, VOCABULARY_BLOCK)[:size]
    return np.concatenate([ids, np.zeros(size - len(ids), np.bool_)])
