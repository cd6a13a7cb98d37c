"""Records of a pipeline for tests of its wire: any that keep the rules, and plain ones."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from outrider.worker.pipeline.records import Begin, End, Move, Record, Results, Segment
from outrider.worker.pipeline.wire.limits import RecordLimits
from outrider.worker.sampling.params import SamplingParams

LIMITS = RecordLimits(blocks=8, rows=16, context=200, vocabulary=300, embeds=True)
HIDDEN = 6
SLOTS = 64 * LIMITS.blocks
NAMES = {Begin: "begin", Segment: "segment", Move: "move", End: "end", Results: "results"}


def ints(least: int, most: int, count: Any, unique: bool = False) -> Any:
    return count.flatmap(
        lambda n: arrays(np.int32, n, elements=st.integers(least, most), unique=unique)
    )


VISITS = st.integers(0, 8).flatmap(
    lambda stages: arrays(np.float64, (stages, 4), elements=st.floats(0, 1e9))
)


def segments(with_hidden: bool) -> Any:
    """Segments of 0 to 16 rows, those of a sequence side by side."""

    def of(n: int) -> Any:
        floats = arrays(np.float32, (n, HIDDEN), elements=st.floats(-1e6, 1e6, width=32))
        width = st.integers(0, 20) if n else st.just(0)
        return st.builds(
            Segment,
            number=st.integers(0, 2**40),
            rows=arrays(np.int64, n, elements=st.integers(0, 2**50)),
            sequence=arrays(np.int64, n, elements=st.integers(0, 5)).map(np.sort),
            slots=arrays(np.int32, n, elements=st.integers(0, SLOTS - 1), unique=True),
            tokens=arrays(np.int32, n, elements=st.integers(0, LIMITS.vocabulary - 1)),
            positions=arrays(np.int32, n, elements=st.integers(0, LIMITS.context - 1)),
            ancestors=width.flatmap(lambda w: arrays(np.uint8, (n, w))),
            sample=arrays(np.bool_, n),
            hidden=floats if with_hidden and n else st.none(),
            visits=VISITS,
        )

    return st.integers(0, LIMITS.rows).flatmap(of)


SAMPLINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.75]),  # float on the wire, as in a request
    top_k=st.integers(0, 50),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 2**32 - 1),
    logit_bias=st.sampled_from([(), ((1, 2.0), (7, -3.5))]),
)
BEGINS = st.builds(
    Begin,
    sequence=st.integers(0, 2**62),
    tokens=st.integers(130, LIMITS.context).map(lambda n: np.arange(n, dtype=np.int32)),
    prompt=st.integers(0, 130),
    sampling=SAMPLINGS,
    prefix_blocks=ints(0, LIMITS.blocks - 1, st.integers(0, 2), unique=True),
    tree_blocks=ints(0, LIMITS.blocks - 1, st.integers(1, 3), unique=True),
    grammar=st.sampled_from(["", "start: /a+/"]),
    logprobs=st.none() | st.integers(0, 20),
)
MOVES = st.integers(0, 6).flatmap(
    lambda n: st.builds(
        Move,
        sequence=st.integers(0, 2**62),
        sources=ints(0, SLOTS - 1, st.just(n), unique=True),
        destinations=ints(0, SLOTS - 1, st.just(n), unique=True),
        freed=ints(0, SLOTS - 1, st.integers(0, 6), unique=True),
    )
)
RECORDS = st.one_of(BEGINS, segments(False), MOVES, st.builds(End, st.integers(0, 2**62)))


def results_of(n: int, k: int) -> Any:
    return st.builds(
        Results,
        segment=st.integers(0, 2**40),
        rows=arrays(np.int64, n, elements=st.integers(0, 2**50)),
        tokens=arrays(np.int32, n, elements=st.integers(-1, 300)),
        logprobs=arrays(np.float32, n, elements=st.floats(-50, 0, width=32)),
        top_tokens=arrays(np.int32, (n, k), elements=st.integers(-1, 300)),
        top_logprobs=arrays(np.float32, (n, k), elements=st.floats(-50, 0, width=32)),
        visits=VISITS,
    )


RESULTS = st.tuples(st.integers(1, 9), st.integers(0, 4)).flatmap(lambda nk: results_of(*nk))


def segment(number: int = 1, count: int = 3, first: int = 0, **fields: Any) -> Segment:
    """A segment of prefill rows of sequence 1, from position `first` on, in block 0."""
    places = np.arange(first, first + count, dtype=np.int32)
    plain: dict[str, Any] = {
        "rows": places.astype(np.int64),
        "sequence": np.ones(count, np.int64),
        "slots": places,
        "tokens": places + np.int32(5),
        "positions": places,
        "ancestors": np.zeros((count, 8), np.uint8),
        "sample": np.arange(count) == count - 1,
    }
    return Segment(number, **(plain | fields))


def begin(sequence: int = 1, tokens: int = 3, **fields: Any) -> Begin:
    """A greedy sequence whose prompt a `segment` has; block 1 is its tree's."""
    plain: dict[str, Any] = {
        "tokens": np.arange(tokens, dtype=np.int32) + np.int32(5),
        "prompt": tokens,
        "sampling": SamplingParams(),
        "prefix_blocks": np.zeros(0, np.int32),
        "tree_blocks": np.array([1], np.int32),
    }
    return Begin(sequence, **(plain | fields))


def move(sequence: int = 1, **fields: Any) -> Move:
    none = np.zeros(0, np.int32)
    return Move(sequence, **({"sources": none, "destinations": none, "freed": none} | fields))


def assert_same(left: Record | Results, right: Record | Results) -> None:
    """Fails unless all fields that travel are equal, in value, shape and type."""
    assert type(left) is type(right)
    for name in set(left.__slots__) - {"arrived"}:
        ours, theirs = getattr(left, name), getattr(right, name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, name
            assert np.array_equal(ours, theirs), name
        else:
            assert ours == theirs, name
