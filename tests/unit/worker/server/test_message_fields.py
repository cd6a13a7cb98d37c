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


GROUP = b"\xc3\x3e\x08\x01\x12\x02\xff\xff\xc4\x3e"
"""Field 1000, which no message has: a number and two bytes that are no message."""


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_group_in_front_hides_no_fields(at: int) -> None:
    many = pb.GenerateRequest(sampling=pb.Sampling(logit_bias=dict.fromkeys(range(200_000), 1.0)))
    sent = GROUP * at + many.SerializeToString()
    assert isinstance(READ(sent), InvalidField)
    few = pb.GenerateRequest(text="x" * LARGE_BYTES).SerializeToString()
    assert READ(GROUP * at + few).text == "x" * LARGE_BYTES


@given(st.binary(max_size=200))
def test_bytes_that_are_read_are_counted(sent: bytes) -> None:
    """What the count does not follow, the library does not read either."""
    least = message_fields.LARGE_BYTES
    message_fields.LARGE_BYTES = 0
    try:
        few = has_few_fields(sent, KIND)
    finally:
        message_fields.LARGE_BYTES = least
    if not few:
        with pytest.raises(DecodeError):
            pb.GenerateRequest.FromString(sent)


def test_the_call_ends_with_an_argument_that_is_not_allowed() -> None:
    class Context:
        async def abort(self, code: grpc.StatusCode, words: str, trailers: Any = ()) -> None:
            raise RuntimeError(code.name, words)

    refused = READ(chat(MAX_FIELDS))
    with pytest.raises(RuntimeError, match=f"INVALID_ARGUMENT.*at most {MAX_FIELDS} fields"):
        asyncio.run(refuse_unreadable(refused, Context()))
