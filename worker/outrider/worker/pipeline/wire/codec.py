"""Codec of the pipeline: its records and results to the payloads of a stream, and back.

Checks that bytes are records whose arrays fit together. Leaves numbers out of range to `limits`,
the leader's books to `pipeline.stage`.
"""

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_STAGES, StageDtype
from outrider.kernels.cpu.packing import to_bfloat
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.payloads import Payloads
from outrider.worker.link.records import Body, RecordKind, RecordKinds, sampling_bytes
from outrider.worker.model.matrix import widened
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

BEGIN, SEGMENT, MOVE, END, RESULTS = range(7, 12)
"""Kinds of record; the draft link has those before."""
_BEGIN = struct.Struct("<QIIIIIi")
"""Fields of a Begin: sequence, prompt, tokens, prefix_blocks, tree_blocks, bytes of the grammar,
logprobs or -1; then sampling, tokens i32, prefix_blocks i32, tree_blocks i32, grammar."""
_SEGMENT = struct.Struct("<QIIII")
"""Fields of a Segment: number, rows, bytes of a row's ancestors, bytes of all hidden states,
visits; then rows i64, sequences i64, visits f64 [visits, 4], slots i32, tokens i32, positions i32,
hidden states, ancestors u8, sample u8 [rows / 8]."""
_MOVE = struct.Struct("<QII")
"""Fields of a Move: sequence, moved rows, freed slots; then sources i32, destinations i32, freed
i32."""
_END = struct.Struct("<Q")
"""Field of an End: sequence."""
_RESULTS = struct.Struct("<QIIII")
"""Fields of Results: segment, rows, likeliest tokens of a row, visits, 0; then rows i64, visits f64
[visits, 4], tokens i32, logprobs f32, top_tokens i32, top_logprobs f32."""
NOT_WANTED = -1
"""In place of a number of log-probabilities."""
MAX_ID = 2**63 - 1
"""Limit of the numbers of sequences, segments and rows."""
MAX_FP16 = np.float32(np.finfo(np.float16).max)
ELEMENT_BYTES = {StageDtype.FP32: 4, StageDtype.AUTO: 4, StageDtype.BF16: 2, StageDtype.FP16: 2}


@dataclass(slots=True)
class Codec:
    """Codec of one group's records."""

    hidden_format: StageDtype
    hidden: int
    """Numbers of one hidden state."""
    payloads: Payloads = field(init=False)

    def __post_init__(self) -> None:
        kinds = RecordKinds(
            RecordKind(BEGIN, Begin, _begin, _begin_from),
            RecordKind(SEGMENT, Segment, self._segment, self._segment_from),
            RecordKind(MOVE, Move, _move, _move_from),
            RecordKind(END, End, _end, _end_from),
            RecordKind(RESULTS, Results, _results, _results_from),
        )
        self.payloads = Payloads(pb.StageMessage, kinds)

    def encode(self, record: Record | Results) -> bytes:
        """Return the payload of one record."""
        return self.payloads.written([record])

    def decode(self, payload: bytes) -> Record | Results | None:
        """Parse a payload after Hello; None: its sender lives. Raises `ProtocolViolation`."""
        if not payload:
            return None
        messages = self.payloads.read(payload)
        record: Record | Results | None = next(messages, None)
        if record is None or next(messages, None) is not None:
            raise ProtocolViolation("a payload that holds not one record")
        return record

    def _segment(self, segment: Segment) -> bytes:
        hidden = b""
        if segment.hidden is not None:
            hidden = pack_hidden(segment.hidden, self.hidden_format)
        visits, width = segment.visits, segment.ancestors.shape[1]
        head = (segment.number, segment.count, width, len(hidden), len(visits))
        arrays = (
            *(segment.rows, segment.sequence, visits),
            *(segment.slots, segment.tokens, segment.positions),
        )
        sample = np.packbits(segment.sample, bitorder="little").tobytes()
        parts = (_SEGMENT.pack(*head), *(array.tobytes() for array in arrays), hidden)
        return b"".join((*parts, segment.ancestors.tobytes(), sample))

    def _segment_from(self, body: Body) -> Segment:
        number, count, width, hidden_bytes, visits = body.numbers(_SEGMENT)
        return Segment(
            number=_id(number, "segment.number"),
            rows=body.array(np.int64, count, 8),
            sequence=body.array(np.int64, count, 8),
            visits=_visits("segment.visits", body, visits),
            slots=body.array(np.int32, count),
            tokens=body.array(np.int32, count),
            positions=body.array(np.int32, count),
            hidden=self._hidden(body.array(np.uint8, hidden_bytes, 1), count),
            ancestors=body.array(np.uint8, count * width, 1).reshape(count, width),
            sample=_bits(body.array(np.uint8, -(-count // 8), 1), count),
        )

    def _hidden(self, data: NDArray[np.uint8], rows: int) -> NDArray[np.float32] | None:
        """Return float32 [rows, hidden]; None where the segment has none."""
        if not len(data):
            return None
        expected = rows * self.hidden * ELEMENT_BYTES[self.hidden_format]
        if len(data) != expected:
            raise ProtocolViolation(
                f"segment.hidden: {len(data)} bytes; {rows} rows of {self.hidden} "
                f"{self.hidden_format} have {expected}"
            )
        return unpack_hidden(data, self.hidden_format).reshape(rows, self.hidden)


def _begin(begin: Begin) -> bytes:
    grammar = begin.grammar.encode()
    arrays = (begin.tokens, begin.prefix_blocks, begin.tree_blocks)
    wanted = NOT_WANTED if begin.logprobs is None else begin.logprobs
    counts = (*map(len, arrays), len(grammar), wanted)
    head = _BEGIN.pack(begin.sequence, begin.prompt, *counts) + sampling_bytes(begin.sampling)
    return b"".join((head, *(array.tobytes() for array in arrays), grammar))


def _begin_from(body: Body) -> Begin:
    sequence, prompt, tokens, prefix, tree, grammar, wanted = body.numbers(_BEGIN)
    return Begin(
        sequence=_id(sequence, "begin.sequence"),
        prompt=prompt,
        sampling=body.sampling(),
        tokens=body.array(np.int32, tokens),
        prefix_blocks=body.array(np.int32, prefix),
        tree_blocks=body.array(np.int32, tree),
        grammar=body.text(grammar),
        logprobs=None if wanted < 0 else wanted,
    )


def _move(move: Move) -> bytes:
    head = _MOVE.pack(move.sequence, len(move.sources), len(move.freed))
    return head + move.sources.tobytes() + move.destinations.tobytes() + move.freed.tobytes()


def _move_from(body: Body) -> Move:
    sequence, moved, freed = body.numbers(_MOVE)
    sources, destinations = body.array(np.int32, moved), body.array(np.int32, moved)
    number = _id(sequence, "move.sequence")
    return Move(number, sources, destinations, body.array(np.int32, freed))


def _end(end: End) -> bytes:
    return _END.pack(end.sequence)


def _end_from(body: Body) -> End:
    (sequence,) = body.numbers(_END)
    return End(_id(sequence, "end.sequence"))


def _results(results: Results) -> bytes:
    visits = results.visits
    head = _RESULTS.pack(results.segment, *results.top_tokens.shape, len(visits), 0)
    arrays = (
        *(results.rows, visits, results.tokens, results.logprobs),
        *(results.top_tokens, results.top_logprobs),
    )
    return b"".join((head, *(array.tobytes() for array in arrays)))


def _results_from(body: Body) -> Results:
    segment, count, likeliest, visits, _ = body.numbers(_RESULTS)
    return Results(
        segment=_id(segment, "results.segment"),
        rows=body.array(np.int64, count, 8),
        visits=_visits("results.visits", body, visits),
        tokens=body.array(np.int32, count),
        logprobs=body.array(np.float32, count),
        top_tokens=body.array(np.int32, count * likeliest).reshape(count, likeliest),
        top_logprobs=body.array(np.float32, count * likeliest).reshape(count, likeliest),
    )


def _bits(data: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    return np.unpackbits(data, count=count, bitorder="little").view(np.bool_)


def _visits(name: str, body: Body, count: int) -> Visits:
    """Read float64[stages, 4], all of them numbers; raises `ProtocolViolation`."""
    if count > MAX_STAGES:
        raise ProtocolViolation(f"{name}: {count} visits; {MAX_STAGES} are allowed")
    visits = body.array(np.float64, 4 * count, 8).reshape(count, 4)
    if not np.isfinite(visits).all():
        raise ProtocolViolation(f"{name}: they must be numbers")
    return visits


def _id(number: int, name: str) -> int:
    if number > MAX_ID:
        raise ProtocolViolation(f"{name}: {number} is larger than {MAX_ID}")
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


def unpack_hidden(data: NDArray[np.uint8], form: StageDtype) -> Floats:
    """Return float32 of whole numbers' bytes, flat."""
    match form:
        case StageDtype.FP32 | StageDtype.AUTO:
            return data.view(np.float32)
        case StageDtype.BF16:
            return widened(data.view(np.uint16))
        case StageDtype.FP16:
            return data.view(np.float16).astype(np.float32)
