"""Records of the link: messages to bytes and back, the same whatever carries them.

A record is a header, a body and zeros up to a multiple of 8; docs/reference/protocol.md describes
each byte. Checks that bytes are messages; leaves the validation of their content to the receiver.
Numbers are little-endian, as in all processors that this runs on. `handshake.PROTOCOL_VERSION`
changes with any of this.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from outrider.worker.errors import LinkBroken, ProtocolViolation
from outrider.worker.link.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth

Received = TypeVar("Received", FromTarget, FromDraft)

HEADER = struct.Struct("<IIIId")
"""Bytes of the body, number of the record (from 0, modulo 2^32), kind, 0, time of writing."""
NOT_TIMED = 0.0
"""Time of writing of a record whose reader takes that of arrival."""
ALIGNMENT = 8
NUMBERS = 1 << 32
OPEN, COMMIT, LIMITS, CLOSE, GROW, CAPACITY = range(1, 7)
"""Kinds of body."""
_OPEN = struct.Struct("<QQ5IfI5f")
"""session, seed, choice, prompt, tokens, biases, bytes of the traceparent, `SETTINGS`; then a body
of limits, tokens i32, biased i32, biases f32, text."""
SETTINGS = (
    *("temperature", "top_k", "top_p", "min_p"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty"),
)
_GROW = struct.Struct("<QIIq")
"""session, root_position, nodes, first_id; then parents i64, tokens i32, logprobs f32 [nodes]."""
_COMMIT = struct.Struct("<QII")
"""session, position, tokens; then tokens i32."""
_LIMITS = struct.Struct("<QIIIIf")
LIMITS_FIELDS = ("session", "depth", "width", "nodes_ahead", "link_lag_micros", "error_scale")
_CLOSE = struct.Struct("<QII")
"""session, reason, bytes of the detail; then the detail."""
_CAPACITY = struct.Struct("<QQ")
"""sessions, tokens."""
NODE_BYTES = 16
BIAS_BYTES = 8


def body_for_draft(message: FromTarget) -> tuple[int, bytes]:
    """Return kind and body of a target's message."""
    match message:
        case Commit(session=session, position=position, tokens=tokens):
            return COMMIT, _COMMIT.pack(session, position, len(tokens)) + tokens.tobytes()
        case Limits():
            return LIMITS, _limits(message)
        case Open():
            return OPEN, _open(message)
        case Close():
            return CLOSE, _close(message)


def body_for_target(message: FromDraft) -> tuple[int, bytes]:
    """Return kind and body of a draft's message."""
    match message:
        case Grow(session=session, growth=growth):
            root_position, first_id, parents, tokens, logprobs = growth
            head = _GROW.pack(session, root_position, len(tokens), first_id)
            return GROW, head + parents.tobytes() + tokens.tobytes() + logprobs.tobytes()
        case Capacity(sessions=sessions, tokens=room):
            return CAPACITY, _CAPACITY.pack(sessions, room)
        case Close():
            return CLOSE, _close(message)


def message_from_target(kind: int, body: memoryview) -> FromTarget:
    """Parse a body of a target; raise `ProtocolViolation`."""
    if kind == COMMIT:
        session, position, count = _unpack(_COMMIT, body)
        _require(len(body) == _COMMIT.size + 4 * count, kind, body)
        return Commit(session, position, np.frombuffer(body, np.int32, count, _COMMIT.size))
    if kind == LIMITS:
        _require(len(body) == _LIMITS.size, kind, body)
        return _limits_from(body)
    if kind == OPEN:
        return _open_from(body)
    _require(kind == CLOSE, kind, body)
    return _close_from(body)


def message_from_draft(kind: int, body: memoryview) -> FromDraft:
    """Parse a body of a draft; raise `ProtocolViolation`."""
    if kind == GROW:
        session, root_position, count, first_id = _unpack(_GROW, body)
        _require(len(body) == _GROW.size + NODE_BYTES * count, kind, body)
        tokens = _GROW.size + 8 * count
        growth = Growth(
            root_position,
            first_id,
            np.frombuffer(body, np.int64, count, _GROW.size),
            np.frombuffer(body, np.int32, count, tokens),
            np.frombuffer(body, np.float32, count, tokens + 4 * count),
        )
        return Grow(session, growth)
    if kind == CAPACITY:
        _require(len(body) == _CAPACITY.size, kind, body)
        return Capacity(*_unpack(_CAPACITY, body))
    _require(kind == CLOSE, kind, body)
    return _close_from(body)


def _open(message: Open) -> bytes:
    params, traceparent = message.sampling, message.traceparent.encode()
    biased = [token for token, _ in params.logit_bias]
    values = [value for _, value in params.logit_bias]
    head = _OPEN.pack(
        message.session,
        params.seed,
        params.choice,
        message.prompt,
        len(message.tokens),
        len(params.logit_bias),
        len(traceparent),
        *(getattr(params, name) for name in SETTINGS),
    )
    arrays = (message.tokens, np.array(biased, np.int32), np.array(values, np.float32))
    parts = (head, _limits(message.limits), *(array.tobytes() for array in arrays), traceparent)
    return b"".join(parts)


def _open_from(body: memoryview) -> Open:
    session, seed, choice, prompt, count, biases, length, *settings = _unpack(_OPEN, body)
    tokens = _OPEN.size + _LIMITS.size
    biased = tokens + 4 * count
    end = biased + BIAS_BYTES * biases
    _require(len(body) == end + length, OPEN, body)
    bias = zip(
        np.frombuffer(body, np.int32, biases, biased).tolist(),
        np.frombuffer(body, np.float32, biases, biased + 4 * biases).tolist(),
        strict=True,
    )
    named = dict(zip(SETTINGS, settings, strict=True))
    sampling = SamplingParams(**named, seed=seed, choice=choice, logit_bias=tuple(bias))
    return Open(
        session,
        np.frombuffer(body, np.int32, count, tokens),
        sampling,
        _limits_from(body[_OPEN.size :]),
        prompt,
        _text(body[end:]),
    )


def _limits(limits: Limits) -> bytes:
    return _LIMITS.pack(*(getattr(limits, name) for name in LIMITS_FIELDS))


def _limits_from(body: memoryview) -> Limits:
    return Limits(**dict(zip(LIMITS_FIELDS, _unpack(_LIMITS, body), strict=True)))


def _close(message: Close) -> bytes:
    detail = message.detail.encode()
    return _CLOSE.pack(message.session, message.reason.value, len(detail)) + detail


def _close_from(body: memoryview) -> Close:
    session, reason, length = _unpack(_CLOSE, body)
    _require(len(body) == _CLOSE.size + length, CLOSE, body)
    known = {one.value: one for one in CloseReason}
    detail = _text(body[_CLOSE.size :])
    return Close(session, known.get(reason, CloseReason.INVALID), detail)


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"a record's text is no UTF-8: {error.reason}") from None


def _unpack(fields: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    if len(body) < fields.size:
        raise ProtocolViolation(f"a record's body of {len(body)} bytes")
    return fields.unpack_from(body)


def _require(fits: bool, kind: int, body: memoryview) -> None:
    if not fits:
        raise ProtocolViolation(f"a record of kind {kind} with a body of {len(body)} bytes")


@dataclass(slots=True)
class RecordWriter(Generic[Received]):
    """Turns messages into records, which it numbers."""

    body: Callable[[Received], tuple[int, bytes]]
    _number: int = 0

    def write(self, message: Received, now: float) -> bytes:
        """Return the record of a message that is written `now`, by `time.monotonic()`."""
        kind, body = self.body(message)
        header = HEADER.pack(len(body), self._number, kind, 0, now)
        self._number = (self._number + 1) % NUMBERS
        return header + body + bytes(-len(body) % ALIGNMENT)


@dataclass(slots=True)
class RecordReader(Generic[Received]):
    """Turns the bytes of a stream, however they are cut, into messages."""

    message: Callable[[int, memoryview], Received]
    max_bytes: int
    """Of one record."""
    _number: int = 0
    _rest: bytearray = field(default_factory=bytearray)
    """Bytes of a record that has not come whole."""

    @property
    def unfinished(self) -> bool:
        """True if a record has come in part."""
        return bool(self._rest)

    def read(self, data: bytearray) -> Iterator[tuple[Received, int, float]]:
        """Yield messages that are whole now, with their bytes and the time of their writing.

        `data` is the reader's own: arrays of messages are views of it. Raises `LinkBroken` where it
        holds no records; nothing must be read after that.
        """
        data = self._rest + data if self._rest else data
        view, start = memoryview(data), 0
        while len(data) - start >= HEADER.size:
            size, number, kind, _, written = HEADER.unpack_from(data, start)
            self._check(size, number)
            body = start + HEADER.size
            end = body + size + -size % ALIGNMENT
            if end > len(data):
                break
            self._number = (self._number + 1) % NUMBERS
            try:
                message = self.message(kind, view[body : body + size])
            except ProtocolViolation as error:
                raise LinkBroken(str(error)) from None
            yield message, end - start, written
            start = end
        self._rest = data[start:]

    def _check(self, size: int, number: int) -> None:
        if number != self._number:
            raise LinkBroken(f"record {number} came where {self._number} was due")
        if size > self.max_bytes:
            raise LinkBroken(f"a record of {size} bytes; {self.max_bytes} are allowed")


def written(messages: Sequence[Received], writer: RecordWriter[Received], now: float) -> bytes:
    """Return the records of several messages."""
    return b"".join(writer.write(message, now) for message in messages)
