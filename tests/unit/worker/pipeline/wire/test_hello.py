"""Hello between leader and stages: what differs is refused, with both values."""

import dataclasses
from typing import Any

import pytest

from outrider.contract.settings import StageDtype
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import ProtocolViolation, StageRefused
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.pipeline.wire import hello
from outrider.worker.pipeline.wire.hello import Group, StageFacts, StageIdentity

GROUP = Group(77, "abc", 3, StageDtype.BF16, 900)


def facts(stage: int, first: int, last: int, **changes: Any) -> StageFacts:
    plain = StageFacts(stage, LayerRange(first, last, 9), "fp32", 8, 16, 200)
    return dataclasses.replace(plain, **changes)


STAGES = (facts(0, 0, 3), facts(1, 3, 5), facts(2, 5, 9))
OWN = StageIdentity("abc", 3, STAGES[1], hidden=6, vocabulary=300)


def changed(payload: bytes, **fields: Any) -> bytes:
    message = pb.StageMessage.FromString(payload)
    for name, value in fields.items():
        setattr(message.hello, name, value)
    return message.SerializeToString()


def test_a_group_is_what_its_leader_says() -> None:
    assert hello.accept_hello(OWN, hello.hello_to(GROUP, 1, 3)) == GROUP


def test_the_leader_learns_of_all_stages() -> None:
    own = StageIdentity("abc", 3, STAGES[0], 6, 300)
    answer = hello.answer(own, GROUP, STAGES[1:])
    assert hello.accept_answer(GROUP, 0, 0, answer) == STAGES


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"revision": "abd"}, "stage 1 of 3: its model is abc, not abd"),
        ({"stages": 2}, "stage 1 of 3: its number of stages is 3, not 2"),
        ({"stage": 2}, "stage 1 of 3: its number is 1, not 2"),
        ({"first_layer": 4}, "stage 1 of 3: its first layer is 3, not 4"),
        ({"protocol_min": 5, "protocol_max": 6}, "stage 1 of 3: protocol versions 5 to 6 are"),
        ({"hidden_format": 9}, "stage 1 of 3: hidden format 9 is not known here"),
        ({"silence_millis": 0}, "stage 1 of 3: silence_millis: 0 is not allowed"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(StageRefused, match=f"^{problem}"):
        hello.accept_hello(OWN, changed(hello.hello_to(GROUP, 1, 3), **fields))


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        ((facts(1, 3, 5),), r"stage 1: it answers for stages \[1\]; there are 3"),
        ((facts(1, 2, 5), STAGES[2]), "stage 1: its first layer is 2, not 3"),
        ((facts(1, 3, 4), STAGES[2]), "stage 2: its first layer is 5, not 4"),
        ((STAGES[1], facts(2, 5, 8)), "the last stage ends with layer 8 of 9"),
        (
            (STAGES[1], facts(2, 5, 9, dtype="int8")),
            "stage 2: its weights are int8, those of .* fp",
        ),
        ((STAGES[1], facts(2, 5, 9, layers=LayerRange(5, 8, 8))), "stage 2: layers 5 to 7 of 8; o"),
    ],
)
def test_stages_that_are_no_whole_model_are_refused(
    stages: tuple[StageFacts, ...], problem: str
) -> None:
    own = dataclasses.replace(OWN, facts=stages[0])
    with pytest.raises(StageRefused, match=f"^{problem}"):
        hello.accept_answer(GROUP, 1, 3, hello.answer(own, GROUP, stages[1:]))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"revision": "x"}, "stage 1: its model is x, not abc"),
        ({"group": 78}, "stage 1: its group is 78, not 77"),
        ({"stages": 4}, "stage 1: its number of stages is 4, not 3"),
        ({"protocol_max": 1}, "stage 1: protocol versions 4 to 1 are spoken"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(fields: dict[str, Any], problem: str) -> None:
    answer = hello.answer(OWN, GROUP, STAGES[2:])
    with pytest.raises(StageRefused, match=f"^{problem}"):
        hello.accept_answer(GROUP, 1, 3, changed(answer, **fields))


def test_layers_that_no_model_has_are_refused() -> None:
    message = pb.StageMessage.FromString(hello.answer(OWN, GROUP, STAGES[2:]))
    message.hello.facts[0].layers = 0
    with pytest.raises(StageRefused, match="stage 1: no layers 3 to 2 in a model of 9"):
        hello.accept_answer(GROUP, 1, 3, message.SerializeToString())


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", pb.StageMessage(records=b"").SerializeToString()]
)
def test_what_is_no_hello_is_a_violation(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        hello.accept_hello(OWN, payload)
