"""A stream that this party opens to a stage: the connection, Hello, then records or results."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Self

import grpc

from outrider.contract.settings import PeerSettings
from outrider.worker.errors import LinkBroken, ProtocolViolation, StageLost, StageRefused
from outrider.worker.host.call_status import final_error
from outrider.worker.host.peers import open_channel
from outrider.worker.link import distributed
from outrider.worker.link.distributed import PairRendezvous
from outrider.worker.link.payload_stream import END
from outrider.worker.pipeline.wire import hello
from outrider.worker.pipeline.wire.hello import Group, StageFacts
from outrider.worker.pipeline.wire.stream import (
    HELLO_SECONDS,
    MAX_BYTES,
    OPTIONS,
    StageStream,
    reason,
)

SERVICE = "outrider.protos.v1.Stage"
RUN, COLLECT = "Run", "Collect"
REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class StageAddress(NamedTuple):
    """Where a stage listens."""

    address: str
    """Address as host:port."""
    peers: PeerSettings | None = None
    """Certificates that it is known by; None: without."""

    def channel(self) -> grpc.aio.Channel:
        """Return a new channel to it; raises `StageLost`."""
        options = (*OPTIONS, ("grpc.max_receive_message_length", MAX_BYTES))
        try:
            name = self.peers.target if self.peers else ""
            return open_channel(self.address, options, self.peers, name)
        except OSError as error:
            raise StageLost(f"the certificate of this stage cannot be read: {error}") from None


class OutgoingStream(StageStream):
    """An open stream to a stage, which has answered."""

    def __init__(self, to: StageAddress, method: str, stage: int) -> None:
        """Connect; raises `StageLost`."""
        super().__init__(f"stage {stage} at {to.address}")
        self._channel = to.channel()
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
        call = self._channel.stream_stream(f"/{SERVICE}/{method}")
        self._call = call(self)
        self._incoming: AsyncIterator[bytes] = aiter(self._call)
        self.facts: tuple[StageFacts, ...] = ()

    @classmethod
    async def open(
        cls, to: StageAddress, method: str, group: Group, stage: int, first_layer: int
    ) -> Self:
        """Connect, say Hello, wait for the answer.

        Raises `StageRefused` if the pair cannot work, `StageLost` if the stage cannot be had now.
        """
        meeting = await _meeting(group, to.address)
        opened = cls(to, method, stage)
        try:
            await opened._greet(group, stage, first_layer, meeting)
        except BaseException:
            await opened.end()
            raise
        if meeting is not None:
            opened.join(meeting.join, opened.lost.put_nowait)
        return opened

    async def carry_group(self, group: Group, arrived: Callable[[bytes], None]) -> None:
        """Carry both directions until the stream ends, then raise `StageLost` with the reason."""
        await self.carry(self._incoming, group.silence, arrived, self._call)

    async def end(self) -> None:
        """End the stream after what was sent, for good."""
        self.close()
        self.put(END)
        self._call.cancel()
        await self._channel.close()
        del self._call, self._incoming  # they hold the connection, and an error may hold this

    async def _greet(
        self, group: Group, stage: int, first_layer: int, meeting: PairRendezvous | None
    ) -> None:
        name = self.name
        offer = None if meeting is None else meeting.offer()
        self.send(hello.hello_to(group, stage, first_layer, offer))
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
            ended = await final_error(error, self._call)
            refused = ended.code() in REFUSALS
            raise (StageRefused if refused else StageLost)(reason(name, ended)) from None


async def _meeting(group: Group, address: str) -> PairRendezvous | None:
    """Open a place where the stage at an address joins; None: the group is not distributed.

    Raises `StageLost`.
    """
    if not group.distributed:
        return None
    try:
        await asyncio.to_thread(distributed.require)
        return await asyncio.to_thread(distributed.open_rendezvous, address)
    except LinkBroken as error:
        raise StageLost(f"no stage can be joined from here: {error}") from None
