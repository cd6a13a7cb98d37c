"""The protocol page describes each byte of a record: its tables decode what the code writes."""

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from outrider.contract.settings import StageDtype
from outrider.worker.link.draft_records import FROM_DRAFT, FROM_TARGET
from outrider.worker.link.records import HEADER, VERSION, RecordKinds, RecordWriter
from outrider.worker.link.wire import Capacity, Close, CloseReason, Commit, Grow, Limits, Open
from outrider.worker.pipeline.records import Begin, End, Move, Results, Segment
from outrider.worker.pipeline.wire.codec import Codec
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth

PAGE = (Path(__file__).parents[3] / "docs/reference/protocol.md").read_text()
TYPES = {"u8": "B", "u32": "I", "u64": "Q", "i32": "i", "i64": "q", "f32": "f", "f64": "d"}
TOKENS = np.array([5, 6, 7], np.int32)
LIMITS = Limits(7, depth=9, width=3, nodes_ahead=24, error_scale=1.5, link_lag_micros=400)
SAMPLING = SamplingParams(
    0.5,
    40,
    0.75,
    0.25,
    2**64 - 1,
    3,
    0.5,
    -1.25,
    1.5,
    ((2, -100.0), (5, 1)),
    *(9, (4, 6), ((7,), (5, 6)), (8, 9)),
)
GROWTH = Growth(
    40,
    2**40,
    np.array([0, 2**40], np.int64),
    TOKENS[:2],
    np.array([-0.5, -0.25], np.float32),
)
DRAFT = {"depth": 9, "width": 3, "nodes_ahead": 24, "link_lag_micros": 400, "error_scale": 1.5}
SETTINGS = {
    "seed": 2**64 - 1,
    "choice": 3,
    "bias_count": 2,
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.75,
    "min_p": 0.25,
    "frequency_penalty": 0.5,
    "presence_penalty": -1.25,
    "repetition_penalty": 1.5,
    "biased": [2, 5],
    "biases": [-100.0, 1.0],
    "min_tokens": 9,
    "late_count": 2,
    "word_count": 2,
    "forbidden_count": 3,
    "late": [4, 6],
    "word_ends": [1, 3],
    "forbidden": [7, 5, 6],
    "forced_count": 2,
    "forced": [8, 9],
}
ROWS = np.array([2**40, 4, 5], np.int64)
VISITS = np.array([[3.0, 0.25, 0.5, 0.75]])
MESSAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Open": (
        Open(7, TOKENS, SAMPLING, LIMITS, 2, "00-a-b-01"),
        {
            "session": 7,
            "prompt": 2,
            "token_count": 3,
            "traceparent_bytes": 9,
            "limits_session": 7,
            **DRAFT,
            **SETTINGS,
            "tokens": [5, 6, 7],
            "traceparent": list(b"00-a-b-01"),
        },
    ),
    "Commit": (
        Commit(7, 41, TOKENS),
        {"session": 7, "position": 41, "token_count": 3, "tokens": [5, 6, 7]},
    ),
    "Limits": (LIMITS, {"session": 7, **DRAFT}),
    "Close": (
        Close(7, CloseReason.TOO_LONG, "64 fit"),
        {"session": 7, "reason": 5, "detail_bytes": 6, "detail": list(b"64 fit")},
    ),
    "Grow": (
        Grow(7, GROWTH),
        {
            "session": 7,
            "root_position": 40,
            "node_count": 2,
            "first_id": 2**40,
            "parents": [0, 2**40],
            "tokens": [5, 6],
            "logprobs": [-0.5, -0.25],
        },
    ),
    "Capacity": (Capacity(2, 8192), {"sessions": 2, "tokens": 8192}),
    "Begin": (
        Begin(7, TOKENS, 2, SAMPLING, TOKENS[:1], TOKENS[1:], "start:", 4),
        {
            "sequence": 7,
            "prompt": 2,
            "token_count": 3,
            "prefix_count": 1,
            "tree_count": 2,
            "grammar_bytes": 6,
            "logprobs": 4,
            **SETTINGS,
            "tokens": [5, 6, 7],
            "prefix_blocks": [5],
            "tree_blocks": [6, 7],
            "grammar": list(b"start:"),
        },
    ),
    "Segment": (
        Segment(
            *(7, ROWS, ROWS, TOKENS, TOKENS, TOKENS),
            np.array([[1, 2], [3, 4], [5, 6]], np.uint8),
            np.array([True, False, True]),
            np.array([[1.0], [2.0], [0.5]], np.float32),
            VISITS,
        ),
        {
            "number": 7,
            "row_count": 3,
            "mask_bytes": 2,
            "hidden_bytes": 12,
            "visit_count": 1,
            "rows": ROWS.tolist(),
            "sequences": ROWS.tolist(),
            "visits": VISITS[0].tolist(),
            "slots": [5, 6, 7],
            "tokens": [5, 6, 7],
            "positions": [5, 6, 7],
            "hidden": list(struct.pack("<3f", 1.0, 2.0, 0.5)),
            "ancestors": [1, 2, 3, 4, 5, 6],
            "sample": [0b101],
        },
    ),
    "Move": (
        Move(7, TOKENS[:1], TOKENS[1:2], TOKENS),
        {
            "sequence": 7,
            "moved_count": 1,
            "freed_count": 3,
            "sources": [5],
            "destinations": [6],
            "freed": [5, 6, 7],
        },
    ),
    "End": (End(7), {"sequence": 7}),
    "Results": (
        Results(
            *(7, ROWS, TOKENS, GROWTH.logprobs[[0, 1, 1]]),
            np.array([[1], [2], [3]], np.int32),
            np.array([[-1.0], [-2.0], [-4.0]], np.float32),
            VISITS,
        ),
        {
            "segment": 7,
            "row_count": 3,
            "top_count": 1,
            "visit_count": 1,
            "zero": 0,
            "rows": ROWS.tolist(),
            "visits": VISITS[0].tolist(),
            "tokens": [5, 6, 7],
            "logprobs": [-0.5, -0.25, -0.25],
            "top_tokens": [1, 2, 3],
            "top_logprobs": [-1.0, -2.0, -4.0],
        },
    ),
}


class Row(NamedTuple):
    """A line of a table."""

    offset: str
    type: str
    field: str


def table(heading: str) -> list[Row]:
    """The lines of the table below a heading."""
    section = PAGE.split(f"\n### {heading}", 1)[1].split("\n#", 1)[0]
    lines = re.findall(r"^\| (\d.*?|…) \| (.+?) \| (\w+) \|", section, re.M)
    return [Row(*line) for line in lines]


def read(rows: list[Row], data: bytes) -> tuple[dict[str, Any], int]:
    """The fields of bytes, as a table has them, and where the last one ends."""
    found: dict[str, Any] = {}
    end = 0
    for row in rows:
        kind, _, count = row.type.rstrip("]").partition("[")
        size = struct.calcsize(TYPES[kind])
        offset = end if row.offset == "…" else eval(row.offset, {}, found)
        assert offset == end, f"{row.field} follows the field before"
        number = eval(count, {}, found) if count else 1
        values = struct.unpack_from(f"<{number}{TYPES[kind]}", data, offset)
        found[row.field] = list(values) if count else values[0]
        end = offset + number * size
    return found, end


def kinds_of(name: str) -> RecordKinds:
    """The kinds of record among which there is one for a message."""
    if list(MESSAGES).index(name) >= list(MESSAGES).index("Begin"):
        return Codec(StageDtype.FP32, 1).payloads.kinds
    return FROM_DRAFT if name in ("Grow", "Capacity") else FROM_TARGET


@pytest.mark.parametrize("name", MESSAGES)
def test_a_record_is_what_its_table_says(name: str) -> None:
    message, fields = MESSAGES[name]
    record = RecordWriter(kinds_of(name)).write([message], 2.5)
    head, start = read(table("Header"), record)
    assert start == HEADER.size
    body, end = read(table(f"{name}: kind {head['kind']},"), record[start:])
    assert body == fields
    assert head == {"size": end, "number": 0, "kind": head["kind"], "zero": 0, "written": 2.5}
    assert record[start + end :] == bytes(-end % 8)


def test_every_kind_is_on_the_page() -> None:
    kinds = [int(kind) for kind in re.findall(r"^### \w+: kind (\d+),", PAGE, re.M)]
    assert kinds == list(range(1, len(MESSAGES) + 1))


def test_the_page_names_reasons_and_version() -> None:
    assert f"This is version {VERSION} of the protocol" in PAGE
    (reasons,) = re.findall(r"^\| 8 \| u32 \| reason \| (.*) \|$", PAGE, re.M)
    named = {int(number): name for number, name in re.findall(r"(\d) ([A-Z]\w+)", reasons)}
    assert named == {r.value: r.name.title().replace("_", "") for r in CloseReason}
