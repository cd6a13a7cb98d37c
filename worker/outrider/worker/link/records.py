"""Records of links: messages to bytes and back, the same on every link, whatever carries them.

A record is a header, a body and zeros up to a multiple of 8; docs/reference/protocol.md describes
each byte. Leaves the bodies of the draft link to `draft_records`, those of stages to
`pipeline.wire.codec`, and the validation of what a message says to its receiver. Numbers are
little-endian, as in all processors that this runs on.
"""

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import LinkBroken, ProtocolViolation
from outrider.worker.sampling.params import MAX_BIASES, SETTINGS, SamplingParams

VERSION = 4
"""Version of the records of all links and of the Hello before them; changes with any of both."""
HEADER = struct.Struct("<IIIId")
"""Bytes of the body, number of the record (from 0, modulo 2^32), kind, 0, time of writing."""
NOT_TIMED = 0.0
"""Time of writing of a record whose reader takes that of arrival."""
ALIGNMENT = 8
NUMBERS = 1 << 32
_COUNT = struct.Struct("<I")
_FORBIDDEN = struct.Struct("<IIIII")
"""Fields of forbidden and forced tokens: min_tokens, late tokens, forbidden sequences, their
tokens, forced tokens; then late i32, ends of the sequences among their tokens i32, tokens i32,
forced i32."""
BIAS_BYTES = 8


@dataclass(slots=True)
class Body:
    """Body of a record that has come, read from front to back."""

    data: memoryview
    at: int = 0
    """Bytes that were read; more than there are once one was missing."""

    def numbers(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Read fields; raise `ProtocolViolation`."""
        return fields.unpack_from(self.data, self._take(fields.size))

    def array(self, kind: Any, count: int, itemsize: int = 4) -> NDArray[Any]:
        """Read `count` numbers of `itemsize` bytes, as a view; raise `ProtocolViolation`."""
        return np.frombuffer(self.data, kind, count, self._take(itemsize * count))

    def text(self, size: int) -> str:
        """Read UTF-8 of `size` bytes; raise `ProtocolViolation`."""
        start = self._take(size)
        try:
            return str(self.data[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolViolation(f"a record's text is no UTF-8: {error.reason}") from None

    def sampling(self) -> SamplingParams:
        """Read what `sampling_bytes` wrote; raise `ProtocolViolation`."""
        (settings,) = self.array(SETTINGS, 1, SETTINGS.itemsize).tolist()
        (biases,) = self.numbers(_COUNT)
        _require_few(biases)
        biased = self.array(np.int32, biases).tolist()
        bias = tuple(zip(biased, self.array(np.float32, biases).tolist(), strict=True))
        least, late, words, tokens, forced = self.numbers(_FORBIDDEN)
        _require_few(late, words, tokens)
        late_ids = tuple(self.array(np.int32, late).tolist())
        ends = self.array(np.int32, words)
        forbidden = np.split(self.array(np.int32, tokens), ends)[:-1]
        return SamplingParams(
            **dict(zip(SETTINGS.names or (), settings, strict=True)),
            logit_bias=bias,
            min_tokens=least,
            late=late_ids,
            forbidden=tuple(tuple(word.tolist()) for word in forbidden),
            forced=tuple(self.array(np.int32, forced).tolist()),
        )

    def _take(self, size: int) -> int:
        """Return where the next `size` bytes begin, and go on to their end."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise ProtocolViolation("its counts say more")
        return start


def _require_few(*counts: int) -> None:
    """Raise `ProtocolViolation` for more tokens of one kind than a request may name."""
    if max(counts) > MAX_BIASES:
        raise ProtocolViolation(f"sampling: {max(counts)} tokens; {MAX_BIASES} are allowed")


def sampling_bytes(params: SamplingParams) -> bytes:
    """Return sampling settings as a part of a body."""
    biased = np.array([token for token, _ in params.logit_bias], np.int32)
    biases = np.array([value for _, value in params.logit_bias], np.float32)
    settings = np.array(params.settings, SETTINGS).tobytes()
    bias = _COUNT.pack(len(biases)) + biased.tobytes() + biases.tobytes()
    return settings + bias + _forbidden_bytes(params)


def _forbidden_bytes(params: SamplingParams) -> bytes:
    words = params.forbidden
    ends = np.cumsum([len(word) for word in words], dtype=np.int32)
    tokens = np.array([*itertools.chain(*words)], np.int32)
    forced = np.array(params.forced, np.int32)
    counts = (len(params.late), len(words), len(tokens), len(forced))
    head = _FORBIDDEN.pack(params.min_tokens, *counts)
    arrays = (np.array(params.late, np.int32), ends, tokens, forced)
    return b"".join((head, *(array.tobytes() for array in arrays)))


class RecordKind(NamedTuple):
    """Kind of record: its message, and the way of that to a body and back."""

    number: int
    message: type[Any]
    write: Callable[[Any], bytes]
    read: Callable[[Body], Any]
    """Raises `ProtocolViolation`."""


class RecordKinds:
    """Kinds of record that go one way on a link."""

    def __init__(self, *kinds: RecordKind) -> None:
        self._of_message = {kind.message: kind for kind in kinds}
        self._of_number = {kind.number: kind for kind in kinds}

    def body(self, message: Any) -> tuple[int, bytes]:
        """Return kind and body of a message."""
        kind = self._of_message[type(message)]
        return kind.number, kind.write(message)

    def message(self, number: int, data: memoryview) -> Any:
        """Return the message of a body; raise `ProtocolViolation`."""
        body = Body(data)
        try:
            if number not in self._of_number:
                raise ProtocolViolation("no such record goes this way")
            message = self._of_number[number].read(body)
            if body.at < len(data):
                raise ProtocolViolation("its counts say less")
        except ProtocolViolation as error:
            words = f"a record of kind {number} with a body of {len(data)} bytes: {error}"
            raise ProtocolViolation(words) from None
        return message


@dataclass(slots=True)
class RecordWriter:
    """Turns messages into records, which it numbers."""

    kinds: RecordKinds
    _number: int = 0

    def write(self, messages: Iterable[Any], now: float = NOT_TIMED) -> bytes:
        """Return the records of messages that are written `now`, by `time.monotonic()`."""
        parts: list[bytes] = []
        for message in messages:
            kind, body = self.kinds.body(message)
            header = HEADER.pack(len(body), self._number, kind, 0, now)
            self._number = (self._number + 1) % NUMBERS
            parts += (header, body, bytes(-len(body) % ALIGNMENT))
        return b"".join(parts)


@dataclass(slots=True)
class RecordReader:
    """Turns the bytes of a stream, however they are cut, into messages."""

    kinds: RecordKinds
    max_bytes: int
    """Limit of one body."""
    _number: int = 0
    _rest: bytearray = field(default_factory=bytearray)
    """Bytes of a record that has not come whole."""

    @property
    def unfinished(self) -> bool:
        """True if a record has come in part."""
        return bool(self._rest)

    def read(self, data: bytearray) -> Iterator[tuple[Any, int, float]]:
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
                message = self.kinds.message(kind, view[body : body + size])
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
