"""Codec of the pipeline: records and results to bytes and back; proto at the edge.

Checks that bytes are records whose arrays fit together. Leaves numbers out of range to `limits`,
the leader's books to `pipeline.stage`. Little-endian, as all processors that this runs on.
"""

import dataclasses
from typing import Any, assert_never

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from outrider.contract.settings import MAX_STAGES, StageDtype
from outrider.kernels.cpu.packing import to_bfloat
from outrider.protos.v1 import stage_pb2 as pb
from outrider.worker.checkpoints.checkpoint import widened
from outrider.worker.errors import ProtocolViolation
from outrider.worker.pipeline.records import (
    Begin,
    End,
    Floats,
    Move,
    Record,
    Results,
    Segment,
    Visits,
)
from outrider.worker.sampling.message import sampling_message, sampling_params

VISIT_BYTES = 32
"""Of one stage."""
MAX_ID = 2**63 - 1
"""Of sequences, segments and rows."""
MAX_FP16 = np.float32(np.finfo(np.float16).max)
ELEMENT_BYTES = {StageDtype.FP32: 4, StageDtype.AUTO: 4, StageDtype.BF16: 2, StageDtype.FP16: 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """Codec of one group's records."""

    hidden_format: StageDtype
    hidden: int
    """Numbers of one hidden state."""

    def encode(self, record: Record | Results) -> bytes:
        """Return the bytes of one `StageMessage`."""
        match record:
            case Segment():
                body = pb.StageMessage(segment=self._segment(record))
            case Results():
                body = pb.StageMessage(results=_results(record))
            case Move():
                body = pb.StageMessage(move=_move(record))
            case Begin():
                body = pb.StageMessage(begin=_begin(record))
            case End():
                body = pb.StageMessage(end=pb.SequenceEnd(sequence=record.sequence))
            case _:
                assert_never(record)
        return body.SerializeToString()

    def decode(self, payload: bytes) -> Record | Results | None:
        """Parse a message after Hello; None: its sender lives. Raises `ProtocolViolation`."""
        body = parse(payload)
        match body.WhichOneof("body"):
            case None:
                return None
            case "segment":
                return self._segment_from(body.segment)
            case "results":
                return _results_from(body.results)
            case "move":
                return _move_from(body.move)
            case "begin":
                return _begin_from(body.begin)
            case "end":
                return End(_id(body.end.sequence, "end.sequence"))
            case other:
                raise ProtocolViolation(f"unexpected message: {other}")

    def _segment(self, segment: Segment) -> pb.Segment:
        hidden = segment.hidden
        return pb.Segment(
            number=segment.number,
            rows=_bytes(segment.rows, np.int64),
            sequences=_bytes(segment.sequence, np.int64),
            slots=_bytes(segment.slots, np.int32),
            tokens=_bytes(segment.tokens, np.int32),
            positions=_bytes(segment.positions, np.int32),
            ancestors=_bytes(segment.ancestors, np.uint8),
            sample=np.packbits(segment.sample, bitorder="little").tobytes(),
            hidden=b"" if hidden is None else pack_hidden(hidden, self.hidden_format),
            visits=_bytes(segment.visits, np.float64),
        )

    def _segment_from(self, m: pb.Segment) -> Segment:
        take = Arrays("segment", _count("segment.rows", m.rows, 8))
        sample = take.of("sample", m.sample, np.uint8, whole=-(-take.count // 8))
        return Segment(
            number=_id(m.number, "segment.number"),
            rows=take.of("rows", m.rows, np.int64),
            sequence=take.of("sequences", m.sequences, np.int64),
            slots=take.of("slots", m.slots, np.int32),
            tokens=take.of("tokens", m.tokens, np.int32),
            positions=take.of("positions", m.positions, np.int32),
            ancestors=take.lines("ancestors", m.ancestors, np.uint8),
            sample=np.unpackbits(sample, count=take.count, bitorder="little").view(np.bool_),
            hidden=self._hidden(m.hidden, take.count),
            visits=_visits("segment.visits", m.visits),
        )

    def _hidden(self, data: bytes, rows: int) -> NDArray[np.float32] | None:
        """Return float32 [rows, hidden]; None where the segment has none."""
        if not data:
            return None
        expected = rows * self.hidden * ELEMENT_BYTES[self.hidden_format]
        if len(data) != expected:
            raise ProtocolViolation(
                f"segment.hidden: {len(data)} bytes; {rows} rows of {self.hidden} "
                f"{self.hidden_format} have {expected}"
            )
        return unpack_hidden(data, self.hidden_format).reshape(rows, self.hidden)


@dataclasses.dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of one message, of `count` lines each."""

    message: str
    count: int

    def of(self, field: str, data: bytes, kind: Any, whole: int | None = None) -> NDArray[Any]:
        """Return an array of `count` numbers, or of `whole`; raises `ProtocolViolation`."""
        expected, size = self.count if whole is None else whole, np.dtype(kind).itemsize
        if len(data) != expected * size:
            raise ProtocolViolation(
                f"{self.message}.{field}: {len(data)} bytes; {self.count} rows have "
                f"{expected * size}"
            )
        return np.frombuffer(data, kind)

    def lines(self, field: str, data: bytes, kind: Any) -> NDArray[Any]:
        """Return [count, width], of whatever width; raises `ProtocolViolation`."""
        size = np.dtype(kind).itemsize
        width, rest = divmod(len(data), size * self.count) if self.count else (0, len(data))
        if rest:
            raise ProtocolViolation(
                f"{self.message}.{field}: {len(data)} bytes are no {self.count} rows"
            )
        return np.frombuffer(data, kind).reshape(self.count, width)


def parse(payload: bytes) -> pb.StageMessage:
    """Parse bytes; raise `ProtocolViolation`."""
    message = pb.StageMessage()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    return message


def _begin(begin: Begin) -> pb.SequenceBegin:
    return pb.SequenceBegin(
        sequence=begin.sequence,
        tokens=_bytes(begin.tokens, np.int32),
        prompt=begin.prompt,
        sampling=sampling_message(begin.sampling),
        prefix_blocks=_bytes(begin.prefix_blocks, np.int32),
        tree_blocks=_bytes(begin.tree_blocks, np.int32),
        grammar=begin.grammar,
        logprobs=begin.logprobs,
    )


def _begin_from(m: pb.SequenceBegin) -> Begin:
    return Begin(
        sequence=_id(m.sequence, "begin.sequence"),
        tokens=_ints("begin.tokens", m.tokens),
        prompt=m.prompt,
        sampling=sampling_params(m.sampling),
        prefix_blocks=_ints("begin.prefix_blocks", m.prefix_blocks),
        tree_blocks=_ints("begin.tree_blocks", m.tree_blocks),
        grammar=m.grammar,
        logprobs=m.logprobs if m.HasField("logprobs") else None,
    )


def _move(move: Move) -> pb.Move:
    return pb.Move(
        sequence=move.sequence,
        sources=_bytes(move.sources, np.int32),
        destinations=_bytes(move.destinations, np.int32),
        freed=_bytes(move.freed, np.int32),
    )


def _move_from(m: pb.Move) -> Move:
    sources = _ints("move.sources", m.sources)
    return Move(
        sequence=_id(m.sequence, "move.sequence"),
        sources=sources,
        destinations=Arrays("move", len(sources)).of("destinations", m.destinations, np.int32),
        freed=_ints("move.freed", m.freed),
    )


def _results(results: Results) -> pb.Results:
    return pb.Results(
        segment=results.segment,
        rows=_bytes(results.rows, np.int64),
        tokens=_bytes(results.tokens, np.int32),
        logprobs=_bytes(results.logprobs, np.float32),
        top_tokens=_bytes(results.top_tokens, np.int32),
        top_logprobs=_bytes(results.top_logprobs, np.float32),
        visits=_bytes(results.visits, np.float64),
    )


def _results_from(m: pb.Results) -> Results:
    take = Arrays("results", _count("results.rows", m.rows, 8))
    results = Results(
        segment=_id(m.segment, "results.segment"),
        rows=take.of("rows", m.rows, np.int64),
        tokens=take.of("tokens", m.tokens, np.int32),
        logprobs=take.of("logprobs", m.logprobs, np.float32),
        top_tokens=take.lines("top_tokens", m.top_tokens, np.int32),
        top_logprobs=take.lines("top_logprobs", m.top_logprobs, np.float32),
        visits=_visits("results.visits", m.visits),
    )
    if results.top_tokens.shape != results.top_logprobs.shape:
        raise ProtocolViolation("results.top_tokens and results.top_logprobs differ in length")
    return results


def _bytes(array: NDArray[Any], kind: type[np.generic]) -> bytes:
    return np.asarray(array, kind).tobytes()


def _ints(field: str, data: bytes) -> NDArray[np.int32]:
    return np.frombuffer(data, np.int32, _count(field, data, 4))


def _visits(field: str, data: bytes) -> Visits:
    """Return float64[stages, 4], all of them numbers; raises `ProtocolViolation`."""
    count = _count(field, data, VISIT_BYTES)
    if count > MAX_STAGES:
        raise ProtocolViolation(f"{field}: {count} visits; {MAX_STAGES} are allowed")
    visits = np.frombuffer(data, np.float64).reshape(count, -1 if count else 4)
    if not np.isfinite(visits).all():
        raise ProtocolViolation(f"{field}: they must be numbers")
    return visits


def _count(field: str, data: bytes, size: int) -> int:
    """Return how many numbers of `size` bytes there are; raises `ProtocolViolation`."""
    if len(data) % size:
        raise ProtocolViolation(f"{field}: {len(data)} bytes are no numbers of {size}")
    return len(data) // size


def _id(number: int, field: str) -> int:
    if number > MAX_ID:
        raise ProtocolViolation(f"{field}: {number} is larger than {MAX_ID}")
    return number


def pack_hidden(hidden: Floats, form: StageDtype) -> bytes:
    """Return bytes of hidden states; fp16 cuts off what is larger than it can hold."""
    match form:
        case StageDtype.FP32 | StageDtype.AUTO:
            return np.ascontiguousarray(hidden, np.float32).tobytes()
        case StageDtype.BF16:
            return to_bfloat(hidden).tobytes()
        case StageDtype.FP16:
            return np.clip(hidden, -MAX_FP16, MAX_FP16).astype(np.float16).tobytes()


def unpack_hidden(data: bytes, form: StageDtype) -> Floats:
    """Return float32 of whole numbers' bytes, flat."""
    match form:
        case StageDtype.FP32 | StageDtype.AUTO:
            return np.frombuffer(data, np.float32)
        case StageDtype.BF16:
            return widened(np.frombuffer(data, np.uint16))
        case StageDtype.FP16:
            return np.frombuffer(data, np.float16).astype(np.float32)
