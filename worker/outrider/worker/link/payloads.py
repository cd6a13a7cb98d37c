"""Payloads of the gRPC stream: messages of several sessions as the records of one payload.

A payload costs each side the same whatever it holds, and records need no arrays of protobuf. For a
peer that reads no records each message is a payload of its own, or a part of a batch (`codec`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, ProtocolViolation
from outrider.worker.link import codec
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


def for_draft(messages: Sequence[FromTarget], records: bool) -> Iterator[bytes]:
    """Yield payloads with a target's messages, in order; an Open, which is large, is one itself."""
    if not records:
        yield from map(codec.encode_for_draft, messages)
        return
    small: list[FromTarget] = []
    for message in messages:
        if isinstance(message, Open):
            yield from _records_for_draft(small)
            yield codec.encode_for_draft(message)
            small = []
        else:
            small.append(message)
    yield from _records_for_draft(small)


def _records_for_draft(messages: Sequence[FromTarget]) -> Iterator[bytes]:
    if messages:
        data = written(messages, RecordWriter(body_for_draft), NOT_TIMED)
        yield pb.TargetMessage(records=data).SerializeToString()


def for_target(messages: Sequence[FromDraft], records: bool) -> bytes:
    """Return one payload with a draft's messages, in order."""
    if not records:
        return codec.encode_for_target(messages)
    data = written(joined(messages), RecordWriter(body_for_target), NOT_TIMED)
    return pb.DraftMessage(records=data).SerializeToString()


def from_target(payload: bytes) -> list[FromTarget]:
    """Parse a target's payload after its Hello; raise `ProtocolViolation`."""
    data = _records(pb.TargetMessage(), payload)
    if data is None:
        return [codec.decode_from_target(payload)]
    return _read(message_from_target, data)


def from_draft(payload: bytes) -> list[FromDraft]:
    """Parse a draft's payload after its Hello; raise `ProtocolViolation`."""
    data = _records(pb.DraftMessage(), payload)
    return codec.decode_from_draft(payload) if data is None else _read(message_from_draft, data)


def _records(message: pb.TargetMessage | pb.DraftMessage, payload: bytes) -> bytes | None:
    """Return the records of a payload; None if it holds a message of another kind."""
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    return message.records if message.HasField("records") else None


def _read(message: Callable[[int, memoryview], Any], data: bytes) -> list[Any]:
    reader: RecordReader[Any] = RecordReader(message, len(data))
    try:
        messages = [found for found, _, _ in reader.read(bytearray(data))]
    except LinkBroken as error:
        raise ProtocolViolation(str(error)) from None
    if reader.unfinished:
        raise ProtocolViolation("a payload ends in the middle of a record")
    return messages
