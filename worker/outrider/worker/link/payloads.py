"""Payloads of the gRPC stream: messages of several sessions as the records of one payload.

A payload costs each side the same whatever it holds.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, ProtocolViolation
from outrider.worker.link.records import (
    NOT_TIMED,
    RecordReader,
    RecordWriter,
    body_for_draft,
    body_for_target,
    message_from_draft,
    message_from_target,
    written,
)
from outrider.worker.link.wire import FromDraft, FromTarget, Open, joined


def for_draft(messages: Sequence[FromTarget]) -> Iterator[bytes]:
    """Yield payloads with a target's messages, in order; an Open, which is large, is one itself."""
    small: list[FromTarget] = []
    for message in messages:
        if isinstance(message, Open):
            yield from _payload_for_draft(small)
            yield from _payload_for_draft([message])
            small = []
        else:
            small.append(message)
    yield from _payload_for_draft(small)


def _payload_for_draft(messages: Sequence[FromTarget]) -> Iterator[bytes]:
    if messages:
        data = written(messages, RecordWriter(body_for_draft), NOT_TIMED)
        yield pb.TargetMessage(records=data).SerializeToString()


def for_target(messages: Sequence[FromDraft]) -> bytes:
    """Return one payload with a draft's messages, in order."""
    data = written(joined(messages), RecordWriter(body_for_target), NOT_TIMED)
    return pb.DraftMessage(records=data).SerializeToString()


def from_target(payload: bytes) -> list[FromTarget]:
    """Parse a target's payload after its Hello; raise `ProtocolViolation`."""
    return _read(message_from_target, pb.TargetMessage(), payload)


def from_draft(payload: bytes) -> list[FromDraft]:
    """Parse a draft's payload after its Hello; raise `ProtocolViolation`."""
    return _read(message_from_draft, pb.DraftMessage(), payload)


def _read(
    parse: Callable[[int, memoryview], Any],
    message: pb.TargetMessage | pb.DraftMessage,
    payload: bytes,
) -> list[Any]:
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    if not message.HasField("records"):
        raise ProtocolViolation(f"unexpected message: {message.WhichOneof('body')}")
    data = message.records
    reader: RecordReader[Any] = RecordReader(parse, len(data))
    try:
        messages = [found for found, _, _ in reader.read(bytearray(data))]
    except LinkBroken as error:
        raise ProtocolViolation(str(error)) from None
    if reader.unfinished:
        raise ProtocolViolation("a payload ends in the middle of a record")
    return messages
