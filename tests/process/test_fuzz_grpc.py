"""Whatever is sent to the gRPC services is answered or refused by name, and breaks nothing."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from hypothesis import given
from hypothesis import strategies as st

from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.internal import control_pb2
from tests.process.fuzzing import (
    NASTY_NUMBERS,
    NASTY_REGEXES,
    NASTY_SCHEMAS,
    PROMPT,
    SECONDS,
    Fuzzed,
    fuzzed,
    seldom,
)

INFERENCE, CONTROL = "/outrider.protos.v1.Inference/", "/outrider.protos.v1.Control/"
METHODS: dict[str, type[Message]] = {
    INFERENCE + "Generate": inference_pb2.GenerateRequest,
    INFERENCE + "Tokenize": inference_pb2.TokenizeRequest,
    INFERENCE + "Detokenize": inference_pb2.DetokenizeRequest,
    INFERENCE + "ListModels": inference_pb2.ListModelsRequest,
    CONTROL + "GetState": control_pb2.GetStateRequest,
    CONTROL + "SetPolicy": control_pb2.SetPolicyRequest,
    "/grpc.health.v1.Health/Check": health_pb2.HealthCheckRequest,
}
STREAMED = {INFERENCE + "Generate"}
FINE = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,  # health's answer for a service that is not there
}
TEXTS = (
    *("", "x", "tiny", "user", "system", "tool", "\x00", "é🇫🇷", "<|end|>", "x" * 3000, "[{}]"),
    *('[{"function": {"name": "f"}}]', "127.0.0.1:1", ":::", "unix:///x", "dns://[/x"),
)
VALID = inference_pb2.GenerateRequest(
    text=PROMPT,
    max_tokens=6,
    stop=["zz"],
    logprobs=2,
    priority=1,
    speculate=True,
    sampling=inference_pb2.Sampling(
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.01,
        seed=3,
        frequency_penalty=0.1,
        presence_penalty=0.1,
        repetition_penalty=1.1,
        logit_bias={97: 1.0},
        choice=1,
    ),
)
LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
REAL = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with fuzzed(tmp_path_factory.mktemp("fuzzed")) as made:
        yield made
        made.check_alive()
        made.check_idle()


@pytest.fixture(scope="module")
def channel(target: Fuzzed) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target.worker.address) as made:
        yield made


def messages(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Any fields of a message, as keyword arguments; of each `oneof` at most one."""
    return st.fixed_dictionaries(
        {}, optional={field.name: values(field) for field in kind.fields}
    ).map(lambda fields: one_of_each(kind, fields))


def one_of_each(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    kept = dict(fields)
    for oneof in kind.oneofs:
        for extra in [f.name for f in oneof.fields if f.name in kept][1:]:
            del kept[extra]
    return kept


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """What one field may be set to."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (values(message.fields_by_name[name]) for name in ("key", "value"))
        return st.dictionaries(key, value, max_size=4)
    single = messages(message) if message is not None else scalars(field)
    return st.lists(single, max_size=4) if field.is_repeated else single


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Odd values of the field's type."""
    kind = field.cpp_type
    if kind in LIMITS:
        least, most = LIMITS[kind]
        odd = [int(n) for n in NASTY_NUMBERS if n == n and least <= n <= most]
        return st.one_of(st.sampled_from(odd), st.integers(least, most))
    if kind in REAL:
        return st.one_of(st.sampled_from([float(n) for n in NASTY_NUMBERS if n != 10**400]))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    special = {"json_schema": NASTY_SCHEMAS, "regex": NASTY_REGEXES}.get(field.name, TEXTS)
    return st.one_of(st.sampled_from(special), st.text(max_size=20))


def random_requests() -> st.SearchStrategy[tuple[str, bytes]]:
    """A method, and a message of its type."""
    return st.sampled_from(sorted(METHODS)).flatmap(
        lambda method: messages(METHODS[method].DESCRIPTOR).map(
            lambda fields: (method, METHODS[method](**fields).SerializeToString())
        )
    )


@seldom(250)
@given(random_requests())
def test_any_message_is_answered_or_refused(
    target: Fuzzed, channel: grpc.Channel, request_: tuple[str, bytes]
) -> None:
    assert status(channel, *request_) in FINE


@seldom(200)
@given(messages(inference_pb2.GenerateRequest.DESCRIPTOR), st.integers(1, 2))
def test_a_request_with_odd_fields_is_answered_or_refused(
    target: Fuzzed, channel: grpc.Channel, fields: dict[str, Any], count: int
) -> None:
    changed = inference_pb2.GenerateRequest()
    changed.CopyFrom(VALID)
    few = dict(list(fields.items())[:count])
    changed.MergeFrom(inference_pb2.GenerateRequest(**few))
    assert status(channel, INFERENCE + "Generate", changed.SerializeToString()) in FINE


@pytest.mark.parametrize(
    "form",
    [
        *(inference_pb2.Format(json_schema=schema) for schema in NASTY_SCHEMAS),
        *(inference_pb2.Format(regex=regex) for regex in NASTY_REGEXES),
    ],
    ids=lambda form: str(form)[:40],
)
def test_any_form_is_followed_or_refused(
    target: Fuzzed, channel: grpc.Channel, form: inference_pb2.Format
) -> None:
    changed = inference_pb2.GenerateRequest()
    changed.CopyFrom(VALID)
    changed.format.CopyFrom(form)
    changed.max_tokens = 60
    assert status(channel, INFERENCE + "Generate", changed.SerializeToString()) in FINE


@seldom(100)
@given(st.sampled_from(sorted(METHODS)), st.integers(0, 200), st.binary(max_size=12), st.booleans())
def test_bytes_that_are_no_message_are_refused(
    target: Fuzzed, channel: grpc.Channel, method: str, at: int, odd: bytes, cut: bool
) -> None:
    valid = VALID.SerializeToString()
    payload = valid[:at] + odd + (b"" if cut else valid[at:])
    assert status(channel, method, payload) in FINE


@pytest.mark.parametrize("number", [1, 2, 7])
def test_text_that_is_no_utf8_is_refused(
    target: Fuzzed, channel: grpc.Channel, number: int
) -> None:
    payload = bytes([number << 3 | 2, 3]) + b"\xff\xc3\x28"
    found = status(channel, INFERENCE + "Generate", payload)
    assert found is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "method", ["/", "/x", INFERENCE, INFERENCE + "Generat", "/outrider.protos.v1.Drafter/Link"]
)
def test_unknown_methods_are_unimplemented(
    target: Fuzzed, channel: grpc.Channel, method: str
) -> None:
    assert status(channel, method, b"\xff" * 9) is grpc.StatusCode.UNIMPLEMENTED


def status(channel: Any, method: str, payload: bytes) -> grpc.StatusCode:
    """How a call ends whose request has these bytes."""
    try:
        if method in STREAMED:
            for _ in channel.unary_stream(method)(payload, timeout=SECONDS):
                pass
        else:
            channel.unary_unary(method)(payload, timeout=SECONDS)
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK
