"""Records with a number out of its range are refused before anything is computed."""

import numpy as np
import pytest
from hypothesis import given

from outrider.worker.errors import ProtocolViolation
from outrider.worker.pipeline.records import Record, Results
from outrider.worker.pipeline.wire.limits import MAX_LOGPROBS, RecordLimits, ResultLimits
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.pipeline.wire.pipeline_records import (
    HIDDEN,
    LIMITS,
    RECORDS,
    SLOTS,
    begin,
    move,
    segment,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@given(RECORDS)
def test_records_that_keep_the_rules_pass(record: Record) -> None:
    LIMITS.check(record)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (segment(count=17), "segment: 17 rows; 16 are allowed"),
        (
            segment(slots=ints(0, 1, SLOTS)),
            "segment.slots: 512 is not allowed; it must be 0 to 511",
        ),
        (segment(slots=ints(0, -1, 1)), "segment.slots: -1 is not allowed"),
        (segment(slots=ints(4, 2, 4)), "segment.slots: they must be different"),
        (
            segment(tokens=ints(0, 300, 1)),
            "segment.tokens: 300 is not allowed; it must be 0 to 299",
        ),
        (segment(positions=ints(0, 200, 1)), "segment.positions: 200 is not allowed"),
        (segment(positions=ints(0, -5, 1)), "segment.positions: -5 is not allowed"),
        (segment(sequence=np.array([1, 2, 1])), "segment.sequences: rows of a sequence must be"),
        (segment(ancestors=np.zeros((3, 129), np.uint8)), "segment.ancestors: masks of 129 bytes"),
        (segment(hidden=np.zeros((3, HIDDEN), np.float32)), "segment.hidden: hidden states"),
        (move(freed=ints(512)), "move.freed: 512 is not allowed"),
        (move(sources=ints(-3), destinations=ints(1)), "move.sources: -3 is not allowed"),
        (move(sources=ints(3, 4), destinations=ints(1, 1)), "move.destinations: they must be"),
        (begin(tokens=0), "begin.tokens: 0 is not allowed; 1 to 200"),
        (begin(tokens=201), "begin.tokens: 201 is not allowed; 1 to 200"),
        (begin(prompt=4), "begin.prompt: 4 is not allowed; 0 to 3"),
        (begin(tree_blocks=ints()), "begin.tree_blocks: 0 is not allowed; 1 to 16"),
        (begin(tree_blocks=ints(1, 8)), "begin.tree_blocks: 8 is not allowed; it must be 0 to 7"),
        (begin(tree_blocks=ints(1, 1)), "begin.tree_blocks: they must be different"),
        (begin(prefix_blocks=ints(1)), "begin.prefix_blocks: 1 is not allowed; 0 to 0 for 3"),
        (begin(logprobs=4000), "begin.logprobs: 4000 is not allowed"),
        (begin(sampling=SamplingParams(top_p=0.0)), "begin.sampling.top_p: 0.0 is not allowed"),
        (
            begin(sampling=SamplingParams(temperature=float("nan"))),
            "begin.sampling.temperature: nan is not allowed",
        ),
    ],
)
def test_a_number_out_of_its_range_is_named(record: Record, problem: str) -> None:
    with pytest.raises(ProtocolViolation, match=f"^{problem}"):
        LIMITS.check(record)


def results(token: int = 0, rows: int = 1, likeliest: int = 0, top: int = -1) -> Results:
    lines = (rows, likeliest)
    return Results(
        1,
        np.arange(rows),
        np.full(rows, token, np.int32),
        np.zeros(rows, np.float32),
        np.full(lines, top, np.int32),
        np.zeros(lines, np.float32),
    )


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (results(token=-3), "results.tokens: -3 is not allowed; it must be -2 to 299"),
        (results(token=300), "results.tokens: 300 is not allowed; it must be -2 to 299"),
        (results(rows=17), "results.rows: 17 is not allowed; at most 16"),
        (
            results(likeliest=MAX_LOGPROBS + 1),
            f"results.top_tokens: {MAX_LOGPROBS + 1} is not allowed; at most {MAX_LOGPROBS}",
        ),
        (results(likeliest=2, top=300), "results.top_tokens: 300 is not allowed"),
    ],
)
def test_results_out_of_range_are_named(wrong: Results, problem: str) -> None:
    limits = ResultLimits(rows=16, vocabulary=300)
    for token in (-1, 0, 299):
        limits.check(results(token, rows=16, likeliest=MAX_LOGPROBS, top=token))
    with pytest.raises(ProtocolViolation, match=f"^{problem}"):
        limits.check(wrong)


def test_stages_behind_the_first_need_hidden_states() -> None:
    behind = RecordLimits(blocks=8, rows=16, context=200, vocabulary=300, embeds=False)
    with pytest.raises(ProtocolViolation, match=r"segment\.hidden: no hidden states"):
        behind.check(segment())
    behind.check(segment(hidden=np.zeros((3, HIDDEN), np.float32)))
    behind.check(segment(count=0))
