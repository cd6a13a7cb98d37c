"""Nonsense and too much of anything: refused with the field and the limit, and nothing breaks."""

import math
import re
from typing import Any

import grpc
import pytest

from outrider.client import InvalidRequest, Message, PolicySettings, Sampling, UnknownModel
from outrider.protos.v1 import inference_pb2
from outrider.worker.server import MAX_MESSAGE_BYTES
from tests.process.workers import Worker, answer

GENERATE = "/outrider.protos.v1.Inference/Generate"

REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("", {}, r"text: .*at least one character"),
    ([Message("wizard", "hi")], {}, r"chat\.messages\[0\]\.role: 'wizard'.*system, user"),
    ([], {}, r"tokens\.ids: .*at least one"),
    ([1, 2, 260], {}, r"tokens\.ids\[2\]: 260 .*below 260"),
    ("x" * 5000, {}, r"prompt: '5000 tokens'.*1 to 2047"),
    ([7] * 2048, {}, r"prompt: '2048 tokens'.*1 to 2047"),
    ("hello", {"max_tokens": 2044}, r"max_tokens: 2044 .*1 to 2043: the prompt has 5 .* 2048"),
    ("hello", {"max_tokens": 0}, r"max_tokens: 0 .*1 to 2043"),
    ("hello", {"max_tokens": 2**32 - 1}, r"max_tokens: 4294967295 .*1 to 2043"),
    ("hello", {"sampling": Sampling(top_p=2.0)}, r"sampling\.top_p: 2.0 .*\(0, 1\]"),
    ("hello", {"sampling": Sampling(top_p=0.0)}, r"sampling\.top_p: 0.0 .*\(0, 1\]"),
    ("hello", {"sampling": Sampling(top_p=math.nan)}, r"sampling\.top_p: nan .*\(0, 1\]"),
    (
        "hello",
        {"sampling": Sampling(temperature=math.nan)},
        r"sampling\.temperature: nan .*0 to 100",
    ),
    ("hello", {"sampling": Sampling(temperature=-1.0)}, r"sampling\.temperature: -1.0 .*0 to 100"),
    (
        "hello",
        {"sampling": Sampling(temperature=math.inf)},
        r"sampling\.temperature: inf .*0 to 100",
    ),
    ("hello", {"sampling": Sampling(min_p=-1.0)}, r"sampling\.min_p: -1.0 .*\[0, 1\]"),
    ("hello", {"sampling": Sampling(min_p=math.nan)}, r"sampling\.min_p: nan .*\[0, 1\]"),
    ("hello", {"stop": [""]}, r"stop\[0\]: '' .*1 to 1024"),
    ("hello", {"stop": ["end", "x" * 2000]}, r"stop\[1\]: 'x+' .*1 to 1024"),
    ("hello", {"stop": ["end"] * 17}, r"stop: '17 strings' .*at most 16"),
]


@pytest.mark.parametrize(("prompt", "options", "says"), REFUSED)
def test_nonsense_is_refused_with_field_and_limit(
    target: Worker, prompt: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        target.client.complete(prompt, **options)


def test_an_unknown_model_is_not_found(target: Worker) -> None:
    with pytest.raises(UnknownModel, match=r"model: 'gpt' is not served here; this is 'tiny'"):
        target.client.complete("hello", model="gpt")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "prompt: .*text, chat and tokens"),
        (inference_pb2.GenerateRequest(chat=inference_pb2.Chat()).SerializeToString(), "chat.mess"),
        (b"\x12\x02\xc3\x28", "request: .*UTF-8"),  # text that is no UTF-8
        (b"\xff\xff\xff\xff", "request: .*no message"),
        (b"\x12\xff\xff\xff\x0f\x41", "request: .*no message"),  # text that ends too early
    ],
)
def test_bytes_that_are_no_request_are_refused(target: Worker, payload: bytes, says: str) -> None:
    error = raw_call(target, GENERATE, payload)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
    assert re.search(says, error.details() or "")


def test_a_message_above_the_limit_is_refused_by_size(target: Worker) -> None:
    request = inference_pb2.GenerateRequest(text="x" * MAX_MESSAGE_BYTES)
    error = raw_call(target, GENERATE, request.SerializeToString())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_MESSAGE_BYTES) in (error.details() or "")


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_rows", 65), ("depth", 0), ("width", 2**31), ("nodes_ahead", 513)],
)
def test_a_policy_out_of_its_limits_changes_nothing(target: Worker, field: str, value: int) -> None:
    before = target.client.state().policy
    fields = {"version": before.version + 1, field: value}
    with pytest.raises(InvalidRequest, match=rf"policy\.{field}: {value} .*it must be 1 to"):
        target.client.set_policy(PolicySettings(**fields))  # type: ignore[arg-type]
    assert target.client.state().policy == before


def test_after_all_refusals_the_target_still_answers(
    target: Worker, plain: tuple[int, ...]
) -> None:
    for prompt, options, _ in REFUSED:
        with pytest.raises(InvalidRequest):
            target.client.complete(prompt, **options)
    assert answer(target, 40).tokens == plain[:40]


def raw_call(target: Worker, method: str, payload: bytes) -> Any:
    """What a call of bytes as they are is refused with."""
    with grpc.insecure_channel(target.address) as channel:
        generate: Any = channel.unary_stream(method)
        call: Any = generate(payload, timeout=30)
        with pytest.raises(grpc.RpcError):
            list(call)
        return call
