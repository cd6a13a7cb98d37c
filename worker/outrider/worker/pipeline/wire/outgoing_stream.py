"""A stream that this party opens to a stage: the connection, Hello, then records or results."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import grpc

from outrider.worker.errors import ProtocolViolation, StageLost, StageRefused
from outrider.worker.pipeline.wire import hello
from outrider.worker.pipeline.wire.hello import Group, StageFacts
from outrider.worker.pipeline.wire.stream import END, HELLO_SECONDS, OPTIONS, Stream, reason

SERVICE = "outrider.protos.v1.Stage"
RUN, COLLECT = "Run", "Collect"
MAX_BYTES = 1 << 26
"""Of one message: 128 rows of 8192 numbers are 4 MiB, a prompt of 2^20 tokens too."""
REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


class OutgoingStream:
    """An open stream to a stage, which has answered."""

    def __init__(self, channel: grpc.aio.Channel, stream: Stream, call: Any) -> None:
        self._channel = channel
        self._stream = stream
        self._call = call
        self._incoming: AsyncIterator[bytes] = aiter(call)
        self.facts: tuple[StageFacts, ...] = ()

    @classmethod
    async def open(
        cls, address: str, method: str, group: Group, stage: int, first_layer: int
    ) -> Self:
        """Connect, say Hello, wait for the answer.

        Raises `StageRefused` if the pair cannot work, `StageLost` if the stage cannot be had now.
        """
        options = (*OPTIONS, ("grpc.max_receive_message_length", MAX_BYTES))
        channel = grpc.aio.insecure_channel(address, options=options)
        stream = Stream(f"stage {stage} at {address}")
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
        call = channel.stream_stream(f"/{SERVICE}/{method}")
        opened = cls(channel, stream, call(stream))
        try:
            await opened._greet(group, stage, first_layer)
        except BaseException:
            await opened.close()
            raise
        return opened

    def send(self, payload: bytes) -> None:
        """Queue a payload; on the loop's thread."""
        self._stream.send(payload)

    @property
    def sent_bytes(self) -> int:
        return self._stream.sent_bytes

    async def carry(self, group: Group, arrived: Callable[[bytes], None]) -> None:
        """Carry both directions until the stream ends, then raise `StageLost` with the reason."""
        await self._stream.carry(self._incoming, group.silence, arrived)

    async def close(self) -> None:
        """End the stream after what was sent."""
        self._stream.outgoing.put(END)
        self._call.cancel()
        await self._channel.close()

    async def _greet(self, group: Group, stage: int, first_layer: int) -> None:
        name = self._stream.name
        self._stream.send(hello.hello_to(group, stage, first_layer))
        seconds = HELLO_SECONDS + group.stages - stage  # one behind that is silent is named first
        try:
            async with asyncio.timeout(seconds):
                payload = await anext(self._incoming)
            self.facts = hello.accept_answer(group, stage, first_layer, payload)
        except TimeoutError:
            raise StageLost(f"{name}: no Hello within {seconds:.0f} s") from None
        except StopAsyncIteration:
            raise StageLost(f"{name} ended its stream before Hello") from None
        except ProtocolViolation as error:
            raise StageRefused(f"{name}: {error}") from None
        except grpc.aio.AioRpcError as error:
            refused = error.code() in REFUSALS
            raise (StageRefused if refused else StageLost)(reason(name, error)) from None
