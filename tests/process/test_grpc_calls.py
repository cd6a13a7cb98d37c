"""The smaller gRPC calls of a target, and what stands beside its services."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from outrider.client import AsyncClient, InvalidRequest, Message
from outrider.protos.v1 import inference_pb2 as pb
from outrider.protos.v1.inference_pb2_grpc import InferenceStub
from tests.process.workers import Worker

INFERENCE = "outrider.protos.v1.Inference"
HARD = "naïve 東京 🇫🇷"


def test_text_comes_back_from_its_tokens(target: Worker) -> None:
    assert target.client.detokenize(target.client.tokenize(HARD)) == HARD
    assert target.client.detokenize([]) == ""


def test_the_asynchronous_client_converts_both_ways(target: Worker) -> None:
    async def there_and_back() -> str:
        async with AsyncClient(target.address, api_key="not asked for") as client:
            return await client.detokenize(await client.tokenize(HARD))

    assert asyncio.run(there_and_back()) == HARD


def test_bytes_that_are_no_characters_are_replaced_and_special_tokens_left_out(
    target: Worker,
) -> None:
    end = 256
    assert target.client.detokenize([ord("a"), 0xC3, end, ord("b"), 0xE6]) == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("ids", "says"), [([1, 260], r"ids\[1\]: 260 .*below 260"), ([1] * 2049, "ids: .*at most 2048")]
)
def test_ids_that_are_none_of_the_models_are_refused(
    target: Worker, ids: list[int], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        target.client.detokenize(ids)
    with pytest.raises(InvalidRequest, match="'gpt' is not served"):
        target.client.detokenize([1], model="gpt")


@pytest.mark.parametrize(
    "tools", ["{", '"x"', "{}", "[1]", "[{}]", "[" * 100_000, '[{"function":1}]']
)
def test_tools_that_cannot_be_read_are_refused_by_name(target: Worker, tools: str) -> None:
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="x")], tools_json=tools[:20_000])
    error = refusal(target, chat)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith("chat.tools_json")


@pytest.mark.parametrize(
    "calls", ["{", "[1]", '[{"function": {"arguments": "{}"}}]', '[{"function": {}}]']
)
def test_calls_that_cannot_be_read_are_refused_by_name(target: Worker, calls: str) -> None:
    turn = pb.ChatMessage(role="assistant", tool_calls_json=calls)
    error = refusal(target, pb.Chat(messages=[turn]))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith("chat.messages[0].tool_calls_json")


def test_a_template_that_knows_no_tools_ignores_them(target: Worker) -> None:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    said = [Message("user", "x", name="me")]
    assert target.client.tokenize(said, tools=tools) == target.client.tokenize(said)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_are_found_by_reflection(target: Worker, version: str) -> None:
    requests = reflection_pb2.ServerReflectionRequest
    asked = [requests(list_services=""), requests(file_containing_symbol=INFERENCE)]
    with grpc.insecure_channel(target.address) as channel:
        reflect = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=requests.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        names, file = reflect(iter(asked), timeout=30)
    assert {INFERENCE, "grpc.health.v1.Health"} <= {
        service.name for service in names.list_services_response.service
    }
    assert pb.DESCRIPTOR.serialized_pb in file.file_descriptor_response.file_descriptor_proto


def test_health_says_that_a_target_serves(target: Worker) -> None:
    with grpc.insecure_channel(target.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        state = health.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert state.status == health_pb2.HealthCheckResponse.SERVING


def refusal(target: Worker, chat: pb.Chat) -> grpc.Call:
    """What a target says to a chat."""
    with grpc.insecure_channel(target.address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            InferenceStub(channel).Tokenize(pb.TokenizeRequest(chat=chat), timeout=30)
        return error.value  # type: ignore[return-value]
