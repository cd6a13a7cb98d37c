"""Handshake of a target and a draft: each side's Hello, and the check of the other's.

A draft of another tokenizer gets the target's tokens too. A refusal is a `PairRefused` with a
reason; the vocabulary's hashes come from `outrider.worker.checkpoints.vocabulary`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.translation import Translation, translation
from outrider.worker.checkpoints.vocabulary import VOCABULARY_BLOCK, Agreement, agreement
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.link.payloads import parsed
from outrider.worker.link.records import VERSION
from outrider.worker.messages import Identity, Room

MAX_VOCABULARY_BLOCKS = 1 << 16
MEMORY, DISTRIBUTED = pb.LINK_TRANSPORT_SHARED_MEMORY, pb.LINK_TRANSPORT_DISTRIBUTED


@dataclass(frozen=True, slots=True)
class TargetHello:
    """A target's Hello that the draft has accepted."""

    allowed: NDArray[np.bool_] | None
    """[target's vocabulary] the ids that this draft may propose; None: its next message is its
    Vocabulary, which says so."""
    vocabulary: int
    """Ids of its tokenizer."""
    hashes: NDArray[np.uint64]
    """[blocks] of those."""
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
    """[own vocabulary] ids that it may propose."""
    translates: bool = False
    """It has another tokenizer, and waits for the target's Vocabulary."""
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
        translates=identity.model is not None,
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
    found = agreement(own.hashes, _hashes(draft), outputs)
    translates = _translates(found, draft.translates, own)
    allowed = np.ones(own.vocabulary, np.bool_) if translates else found.allowed(own.vocabulary)
    room = Room(draft.sessions, draft.context_length)
    meeting = draft.meeting if MEMORY in draft.transports and draft.HasField("meeting") else None
    return DraftHello(
        draft.revision,
        draft.incarnation,
        room,
        allowed,
        translates,
        meeting,
        DISTRIBUTED in draft.transports,
    )


def accept_target(own: Identity, payload: bytes) -> TargetHello:
    """Check a target's first message; raise `ProtocolViolation` or `PairRefused`."""
    target = _hello_of(parsed(pb.TargetMessage, payload))
    _check_protocol(target)
    size = min(target.vocabulary_size, MAX_VOCABULARY_BLOCKS * VOCABULARY_BLOCK)
    hashes = _hashes(target)
    found = agreement(hashes, own.hashes, _counts(own.outputs))
    return TargetHello(
        None if _translates(found, target.translates, own) else found.allowed(size),
        size,
        hashes,
        MEMORY in target.transports,
        DISTRIBUTED in target.transports,
    )


def vocabulary_message(own: Identity) -> bytes:
    """Return what a target says to a draft of another tokenizer; raises `ModelError`."""
    assert own.model is not None
    tokens = vocabulary.packed(vocabulary.read(own.model))
    return pb.TargetMessage(vocabulary=pb.Vocabulary(tokens=tokens)).SerializeToString()


def accept_vocabulary(own: Identity, target: TargetHello, payload: bytes) -> Translation:
    """Return how a target's tokens are translated, by the message after its Hello.

    Raises `ProtocolViolation`, and `PairRefused` where too few tokens are in both.
    """
    message = parsed(pb.TargetMessage, payload)
    if message.WhichOneof("body") != "vocabulary":
        raise ProtocolViolation("the message after Hello must be Vocabulary")
    try:
        tokens = vocabulary.unpacked(message.vocabulary.tokens)
    except ValueError as error:
        raise ProtocolViolation(f"a vocabulary that cannot be read: {error}") from None
    if not np.array_equal(vocabulary.block_hashes(tokens), target.hashes):
        raise ProtocolViolation("the vocabulary is not the one that Hello had the hashes of")
    if len(tokens) < target.vocabulary:
        raise ProtocolViolation(f"a vocabulary of {len(tokens)}, not {target.vocabulary} tokens")
    assert own.model is not None
    return _translation(tuple(tokens[: target.vocabulary]), own.model)


@lru_cache(maxsize=4)
def _translation(tokens: tuple[bytes, ...], own: PreparedModel) -> Translation:
    """Return the translation of a target's tokens, kept for its other pods."""
    known, begin = own.config().vocab, vocabulary.begin(own)
    return translation(tokens, vocabulary.read(own), known, begin)


def _translates(found: Agreement, peer: bool, own: Identity) -> bool:
    """True if a pair needs the target's Vocabulary; raises `PairRefused` where one cannot."""
    if found.is_same:
        return False
    if not peer or own.model is None:
        raise PairRefused(
            f"the tokenizers agree on {found.share:.1%} of the ids that the draft can output, and "
            f"{'this side' if peer else 'the other side'} cannot translate between two"
        )
    return True


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
