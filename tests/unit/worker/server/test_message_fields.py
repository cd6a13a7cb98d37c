"""Fields of a request over gRPC are counted before they are objects."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.errors import InvalidField
from outrider.worker.server import message_fields
from outrider.worker.server.call_errors import refuse_unreadable, tolerant
from outrider.worker.server.message_fields import LARGE_BYTES, MAX_FIELDS, has_few_fields

KIND = pb.GenerateRequest.DESCRIPTOR
TURN = pb.ChatMessage(role="user", content="x" * 300)
READ = tolerant(pb.GenerateRequest.FromString)


def chat(turns: int) -> bytes:
    return pb.GenerateRequest(chat=pb.Chat(messages=[TURN] * turns)).SerializeToString()


@pytest.mark.parametrize(
    "message",
    [
        pb.GenerateRequest(sampling=pb.Sampling(logit_bias=dict.fromkeys(range(200_000), 1.0))),
        pb.GenerateRequest(stop=["x" * 40] * (MAX_FIELDS + 1)),
        pb.GenerateRequest(chat=pb.Chat(messages=[TURN] * MAX_FIELDS)),
    ],
)
def test_many_fields_are_refused_wherever_they_are(message: Any) -> None:
    sent = message.SerializeToString()
    assert len(sent) > LARGE_BYTES
    assert isinstance(READ(sent), InvalidField)


@pytest.mark.parametrize(
    "message",
    [
        pb.GenerateRequest(text="x" * (2 << 20)),
        pb.GenerateRequest(tokens=pb.TokenIds(ids=range(1_000_000))),
        pb.GenerateRequest(chat=pb.Chat(messages=[TURN] * 4096)),
    ],
)
def test_what_people_send_is_read(message: Any) -> None:
    sent = message.SerializeToString()
    assert len(sent) > LARGE_BYTES
    assert READ(sent) == message


@pytest.mark.parametrize(
    "sent", [b"\xff" * (2 << 20), b"\x0a\xff\xff" * (1 << 19), b"\x0b" * LARGE_BYTES]
)
def test_bytes_that_are_no_message_are_left_to_who_reads_them(sent: bytes) -> None:
    assert isinstance(READ(sent), DecodeError | InvalidField)


@given(st.binary(max_size=200))
def test_no_bytes_end_the_count_otherwise(sent: bytes) -> None:
    least = message_fields.LARGE_BYTES
    message_fields.LARGE_BYTES = 0
    try:
        assert has_few_fields(sent, KIND)
    finally:
        message_fields.LARGE_BYTES = least


def test_the_call_ends_with_an_argument_that_is_not_allowed() -> None:
    class Context:
        async def abort(self, code: grpc.StatusCode, words: str, trailers: Any = ()) -> None:
            raise RuntimeError(code.name, words)

    refused = READ(chat(MAX_FIELDS))
    with pytest.raises(RuntimeError, match=f"INVALID_ARGUMENT.*it may have {MAX_FIELDS} fields"):
        asyncio.run(refuse_unreadable(refused, Context()))
