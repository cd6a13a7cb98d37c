"""Payloads of a gRPC stream: protobuf messages, of which most hold the records of several messages.

A payload costs each side the same whatever it holds. `TARGETS` and `DRAFTS` are those of the draft
link; stages have theirs in `pipeline.wire.codec`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, ProtocolViolation
from outrider.worker.link.draft_records import FROM_DRAFT, FROM_TARGET
from outrider.worker.link.records import RecordKinds, RecordReader, RecordWriter
from outrider.worker.link.wire import FromDraft, FromTarget, Open, joined

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], payload: bytes) -> M:
    """Parse bytes of a stream; raise `ProtocolViolation`."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None


class Payloads(NamedTuple):
    """Payloads that go one way on a stream."""

    message: type[Any]
    """Protobuf message, with a field `records`."""
    kinds: RecordKinds

    def written(self, messages: Sequence[Any]) -> bytes:
        """Return one payload with messages, in order."""
        records = RecordWriter(self.kinds).write(messages)
        payload: bytes = self.message(records=records).SerializeToString()
        return payload

    def read(self, payload: bytes) -> Iterator[Any]:
        """Yield the messages of a payload after Hello; raise `ProtocolViolation`."""
        message = parsed(self.message, payload)
        if not message.HasField("records"):
            raise ProtocolViolation(f"unexpected message: {message.WhichOneof('body')}")
        data = bytearray(message.records)
        reader = RecordReader(self.kinds, len(data))
        try:
            yield from (found for found, _, _ in reader.read(data))
        except LinkBroken as error:
            raise ProtocolViolation(str(error)) from None
        if reader.unfinished:
            raise ProtocolViolation("a payload ends in the middle of a record")


TARGETS = Payloads(pb.TargetMessage, FROM_TARGET)
DRAFTS = Payloads(pb.DraftMessage, FROM_DRAFT)


def for_draft(messages: Sequence[FromTarget]) -> Iterator[bytes]:
    """Yield payloads with a target's messages, in order; an Open, which is large, is one itself."""
    small: list[FromTarget] = []
    for message in messages:
        if isinstance(message, Open):
            if small:
                yield TARGETS.written(small)
            yield TARGETS.written([message])
            small = []
        else:
            small.append(message)
    if small:
        yield TARGETS.written(small)


def for_target(messages: Sequence[FromDraft]) -> bytes:
    """Return one payload with a draft's messages, in order."""
    return DRAFTS.written(joined(messages))


def from_target(payload: bytes) -> list[FromTarget]:
    """Parse a target's payload after its Hello; raise `ProtocolViolation`."""
    return list(TARGETS.read(payload))


def from_draft(payload: bytes) -> list[FromDraft]:
    """Parse a draft's payload after its Hello; raise `ProtocolViolation`."""
    return list(DRAFTS.read(payload))
