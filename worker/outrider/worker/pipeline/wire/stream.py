"""One stream of gRPC between two parties of a pipeline, as its asyncio loop sees it.

Each side says that it lives where it has nothing else to say, and gives the other up once it has
been silent for too long. Leaves the payloads' way to `PayloadStream`, Hello to the callers, and
what payloads mean to a `Mailbox`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc

from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import StageLost, WorkerError
from outrider.worker.host.call_status import final_error
from outrider.worker.link.payload_stream import CHANNEL_OPTIONS, PayloadStream

SIGN_OF_LIFE: Final = b""
MAX_BYTES = 1 << 26
"""Most bytes of one payload: 128 rows of 8192 numbers are 4 MiB, a prompt of 2^20 tokens too."""
UNREAD_BYTES = 1 << 28
"""Most bytes that may wait for one neighbour; the leader's segments are far fewer."""
LOOKS = 8
"""Looks, in the longest silence that is allowed, whether something came."""
HELLO_SECONDS = 10.0
OPTIONS = (*CHANNEL_OPTIONS, ("grpc.max_send_message_length", -1))


class StageStream(PayloadStream):
    """Our side of one stream."""

    def __init__(self, name: str) -> None:
        """`name`: the peer, for people."""
        super().__init__(pb.StageMessage, pb.StageMessage, MAX_BYTES, UNREAD_BYTES)
        self.name = name
        self._came = False
        self._said = False
        self.lost: asyncio.Queue[WorkerError] = asyncio.Queue()
        """Reasons why what carries the payloads carries no more."""

    def put(self, payload: bytes) -> None:
        """Have the stream write a message, which is a sign of life, too."""
        self._said = True
        super().put(payload)

    async def carry(
        self,
        incoming: AsyncIterator[bytes],
        silence: float,
        arrived: Callable[[bytes], None],
        call: Any = None,
    ) -> None:
        """Hand over what comes until the stream ends, then raise `StageLost` with the reason.

        `call`: gRPC's own, where this party opened the stream.
        """
        reading = asyncio.create_task(self._read(self.payloads(incoming), arrived, call))
        watching = asyncio.create_task(self._watch(silence))
        full = asyncio.create_task(self.full.wait())
        lost = asyncio.create_task(self.lost.get())
        try:
            await asyncio.wait((reading, watching, full, lost), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            if full.done() and not reading.done():
                raise StageLost(f"{self.name}: {self.violation()}")
            if lost.done() and not reading.done():
                raise StageLost(f"{self.name}: {lost.result()}")
            await reading
        finally:
            for task in (reading, watching, full, lost):
                task.cancel()
            self.close()

    async def _read(
        self, incoming: AsyncIterator[bytes], arrived: Callable[[bytes], None], call: Any
    ) -> None:
        try:
            async for payload in incoming:
                self._came = True
                arrived(payload)
        except grpc.aio.AioRpcError as error:
            raise StageLost(reason(self.name, await final_error(error, call))) from None
        except grpc.aio.AbortError:  # this stage has ended the call, with the reason
            raise StageLost(f"the stream of {self.name} is ended here") from None
        except WorkerError as error:  # of what carries the payloads
            raise StageLost(f"{self.name}: {error}") from None
        raise StageLost(f"{self.name} ended its stream")

    async def _watch(self, silence: float) -> None:
        """Say that we live; raise `StageLost` when nothing has come for too long.

        Looks are counted, not seconds: after a pause of this process itself, what came meanwhile is
        read first.
        """
        silent = 0
        while silent < LOOKS:
            await asyncio.sleep(silence / LOOKS)
            if not self._said:
                self.put(SIGN_OF_LIFE)
            self._said = False
            silent = 0 if self._came else silent + 1
            self._came = False
        raise StageLost(f"{self.name} was silent for {silence:g} s")


def reason(name: str, error: grpc.aio.AioRpcError) -> str:
    """Return in words why a stream ended: as its stage said it, or with the stage's name."""
    details = error.details() or ""
    return details if details.startswith("stage ") else f"{name}: {error.code().name}: {details}"
