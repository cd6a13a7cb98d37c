"""Records of peers: what they say becomes few Python objects, however long they are.

Arrays are views of a record's bytes. What has to be objects, one for each token, has a bound. A
kind of record that is not here fails.
"""

import sys
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import StageDtype
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.draft_records import FROM_DRAFT, FROM_TARGET
from outrider.worker.link.rate_limit import MIN_BYTES
from outrider.worker.link.records import RecordKind, RecordKinds
from outrider.worker.link.wire import Capacity, Close, CloseReason, Commit, Grow, Limits, Open
from outrider.worker.pipeline.records import Begin, End, Move, Results, Segment
from outrider.worker.pipeline.wire.codec import Codec
from outrider.worker.sampling.params import MAX_BIASES, SamplingParams
from outrider.worker.tree.growth import Growth

HIDDEN = 4
OF_STAGES = Codec(StageDtype.FP32, HIDDEN).payloads.kinds
LINKS = {"from a target": FROM_TARGET, "from a draft": FROM_DRAFT, "of stages": OF_STAGES}
LIMITS = Limits(1, 8, 4, 32, 1.0, 1)
MANY = MIN_BYTES // 8
"""Members of a list in a record that is as long as any may be."""
FEW = 1000
"""Objects that a message may take beside its tokens that are objects."""


def ints(count: int) -> Any:
    return np.zeros(count, np.int32)


def longs(count: int) -> Any:
    return np.zeros(count, np.int64)


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def begin(sampling: SamplingParams) -> Begin:
    return Begin(
        sequence=1,
        tokens=ints(MANY),
        prompt=1,
        sampling=sampling,
        prefix_blocks=ints(MANY),
        tree_blocks=ints(MANY),
        grammar="a" * MANY,
    )


LONGEST: dict[type, Any] = {
    Open: Open(1, ints(MANY), SamplingParams(), LIMITS, 1, "a" * MANY),
    Commit: Commit(1, 1, ints(MANY)),
    Limits: LIMITS,
    Close: Close(1, CloseReason.FINISHED, "a" * MANY),
    Grow: Grow(1, Growth(1, 1, longs(MANY), ints(MANY), floats(MANY))),
    Capacity: Capacity(1, 1),
    Begin: begin(SamplingParams()),
    Segment: Segment(
        *(1, longs(MANY), longs(MANY), ints(MANY), ints(MANY), ints(MANY)),
        *(np.zeros((MANY, 8), np.uint8), np.ones(MANY, np.bool_), floats(MANY, HIDDEN)),
    ),
    Move: Move(1, ints(MANY), ints(MANY), ints(MANY)),
    End: End(1),
    Results: Results(
        segment=1,
        rows=longs(MANY),
        tokens=ints(MANY),
        logprobs=floats(MANY),
        top_tokens=ints(2 * MANY).reshape(MANY, 2),
        top_logprobs=floats(MANY, 2),
    ),
}
"""A message of each kind, with lists as long as they may be."""


def kinds() -> list[tuple[RecordKinds, RecordKind]]:
    return [(link, kind) for link in LINKS.values() for kind in link._of_message.values()]


def read(link: RecordKinds, message: Any) -> Any:
    number, body = link.body(message)
    return link.message(number, memoryview(bytearray(body)))


@pytest.mark.parametrize(("link", "kind"), kinds())
def test_the_longest_record_of_each_kind_takes_few_objects(
    link: RecordKinds, kind: RecordKind
) -> None:
    number, body = link.body(LONGEST[kind.message])
    data = memoryview(bytearray(body))
    before = sys.getallocatedblocks()
    message = link.message(number, data)
    assert sys.getallocatedblocks() - before < FEW
    assert isinstance(message, kind.message)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(logit_bias=((0, 0.0),) * MANY),
        SamplingParams(late=(0,) * MANY),
        SamplingParams(forbidden=((),) * MANY),
        SamplingParams(forbidden=((0,) * MANY,)),
    ],
)
def test_tokens_that_sampling_names_are_counted_before_they_are_objects(
    sampling: SamplingParams,
) -> None:
    for link, message in (
        (FROM_TARGET, Open(1, ints(1), sampling, LIMITS, 1)),
        (OF_STAGES, begin(sampling)),
    ):
        number, body = link.body(message)
        data = memoryview(bytearray(body))
        before = sys.getallocatedblocks()
        with pytest.raises(ProtocolViolation, match=f"{MAX_BIASES} are allowed"):
            link.message(number, data)
        assert sys.getallocatedblocks() - before < FEW


def test_as_many_as_a_request_may_name_are_read() -> None:
    sampling = SamplingParams(
        logit_bias=tuple((token, 1.0) for token in range(MAX_BIASES)),
        late=tuple(range(MAX_BIASES)),
        forbidden=((1,),) * MAX_BIASES,
    )
    assert read(OF_STAGES, begin(sampling)).sampling == sampling
