"""Messages of the leading rank arrive as they were sent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import (
    CHILD_FIELDS,
    HEADER,
    ChildSpec,
    DeviceSampleSpec,
    InitMessage,
    SampleSpec,
    StepMessage,
    decode,
    encode,
)
from outrider.worker.sampling.params import SETTINGS, SamplingParams

DRAWN = SamplingParams(0.7, 40, 0.9, 0.05, 2**64 - 1, 2**32 - 1, repetition_penalty=1.5)
GREEDY = SamplingParams()
EACH = np.array([DRAWN.settings, GREEDY.settings], SETTINGS)


def rows_of(
    count: int, outputs: int, deepest: int, sequences: int, blocks: int, by_library: bool = False
) -> Rows:
    random = np.random.default_rng(count)

    def some(*shape: int) -> np.ndarray:
        return random.integers(-(2**31), 2**31, shape).astype(np.int32)

    return Rows(
        tokens=some(count),
        positions=some(count),
        slots=some(count),
        sequence=some(count),
        prefix=some(count),
        ancestors=some(count, deepest),
        depth=some(count),
        outputs=some(outputs),
        tables=some(sequences, blocks),
        by_library=by_library,
    )


@settings(deadline=None)
@given(
    st.integers(1, 130),
    st.integers(0, 130),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 70),
    st.lists(st.integers(0, 40), max_size=4),
    st.booleans(),
)
def test_a_step_arrives_as_it_was_sent(
    count: int,
    outputs: int,
    deepest: int,
    sequences: int,
    blocks: int,
    moves: list[int],
    by_library: bool,
) -> None:
    rows = rows_of(count, outputs, deepest, sequences, blocks, by_library)
    moved = [(np.arange(n, dtype=np.int32), -np.arange(n, dtype=np.int32)) for n in moves]
    numbers = encode(StepMessage(moved, rows))
    assert numbers.dtype == np.int32
    assert numbers[0] == len(numbers)
    read = decode(numbers)
    assert read.rows is not None
    for name in Rows.__slots__:
        assert np.array_equal(getattr(read.rows, name), getattr(rows, name)), name
        assert np.shape(getattr(read.rows, name)) == np.shape(getattr(rows, name)), name
    for sent, came in zip(moved, read.moves, strict=True):
        assert all(map(np.array_equal, sent, came))


def test_hidden_states_arrive_as_they_were_sent() -> None:
    rows = rows_of(3, 2, 1, 1, 1)
    hidden = np.random.default_rng(0).standard_normal((3, 10)).astype(np.float32)[:, :7]
    read = decode(encode(StepMessage([], rows, SampleSpec(9, EACH), hidden)))
    assert read.hidden is not None
    assert np.array_equal(read.hidden, hidden)
    assert isinstance(read.wanted, SampleSpec)
    assert np.array_equal(read.wanted.each, EACH)
    assert decode(encode(StepMessage([], rows))).hidden is None


@pytest.mark.parametrize("count", [3, 4])  # numbers of 8 bytes begin at any of 4
def test_what_is_to_be_sampled_arrives_as_it_was_sent(count: int) -> None:
    rows = rows_of(count, 2, 1, 1, 1)
    read = decode(encode(StepMessage([], rows, SampleSpec(49152, EACH))))
    assert read.rows is not None
    assert isinstance(read.wanted, SampleSpec)
    assert read.wanted.vocabulary == 49152
    assert np.array_equal(read.wanted.each, EACH)
    assert np.array_equal(read.rows.tables, rows.tables)
    assert decode(encode(StepMessage([], rows))).wanted is None


@pytest.mark.parametrize("masks", [0, 2])
def test_what_is_to_be_scored_arrives_as_it_was_sent(masks: int) -> None:
    rows = rows_of(3, 2, 1, 1, 1)
    each = np.array([(DRAWN.settings, 0.5, 1), (GREEDY.settings, 2.0, -1)], CHILD_FIELDS)
    forbidden = np.random.default_rng(0).integers(0, 2, (masks, 301)).astype(np.bool_)
    read = decode(encode(StepMessage([], rows, ChildSpec(301, 4, each, forbidden))))
    assert isinstance(read.wanted, ChildSpec)
    assert (read.wanted.vocabulary, read.wanted.children) == (301, 4)
    assert np.array_equal(read.wanted.each, each)
    assert np.array_equal(read.wanted.masks, forbidden)
    assert read.wanted.masks.shape == forbidden.shape


@pytest.mark.parametrize("logits", [False, True])
def test_what_devices_sample_arrives_as_it_was_sent(logits: bool) -> None:
    rows = rows_of(3, 2, 1, 1, 1)
    read = decode(encode(StepMessage([], rows, DeviceSampleSpec(301, 3, logits, EACH))))
    assert isinstance(read.wanted, DeviceSampleSpec)
    assert (read.wanted.vocabulary, read.wanted.variant) == (301, 3)
    assert read.wanted.logits is logits
    assert np.array_equal(read.wanted.each, EACH)


def test_a_step_without_rows_is_the_last() -> None:
    numbers = encode(StepMessage([], None))
    assert len(numbers) == HEADER
    assert decode(numbers).rows is None


@pytest.mark.parametrize("path", NumericPath)
def test_the_first_message_arrives_as_it_was_sent(path: NumericPath) -> None:
    init = InitMessage(path, blocks=7, longest=4225, rows=128)
    numbers = init.encode()
    assert numbers[0] == len(numbers)
    assert InitMessage.decode(numbers) == init
