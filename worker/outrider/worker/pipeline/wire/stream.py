"""One stream of gRPC between two parties of a pipeline, as its asyncio loop sees it.

Each side says that it lives where it has nothing else to say, and gives the other up once it has
been silent for too long. torch.distributed carries the payloads of a stream that was told to join.
Leaves Hello to the callers, and what payloads mean to a `Mailbox`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from outrider.protos.v1 import stage_pb2 as pb
from outrider.worker.errors import StageLost, WorkerError
from outrider.worker.link.distributed import PairCarrier
from outrider.worker.link.send_queue import SendQueue

if TYPE_CHECKING:
    from outrider.worker.link.process_pair import ProcessPair

SIGN_OF_LIFE: Final = b""
END: Final = b"\xff"
"""In a queue: nothing follows. No message begins so."""
MAX_BYTES = 1 << 26
"""Of one payload: 128 rows of 8192 numbers are 4 MiB, a prompt of 2^20 tokens too."""
UNREAD_BYTES = 1 << 28
"""That may wait for one neighbour; the leader's segments are far fewer."""
LOOKS = 8
"""Looks, in the longest silence that is allowed, whether something came."""
STATUS_SECONDS = 0.5
"""Longest that a stream's status is waited for once a write to it has failed."""
HELLO_SECONDS = 10.0
OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a stage is on loopback or in the cluster
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
)


class StageStream:
    """Our side of one stream."""

    def __init__(self, name: str) -> None:
        """`name`: the peer, for people."""
        self.name = name
        self.outgoing = SendQueue(UNREAD_BYTES)
        self._stream_bytes = 0
        self._came = False
        self._said = False
        self._carrier: PairCarrier | None = None
        self._lost: asyncio.Queue[WorkerError] = asyncio.Queue()
        """Why what carries the payloads carries no more."""

    def join(self, join: "Callable[[], ProcessPair]") -> None:
        """Have torch.distributed carry the payloads, both ways, once `join` has met the other; on
        the loop's thread."""
        arguments = (self._announce, self._lost.put_nowait, MAX_BYTES, UNREAD_BYTES)
        self._carrier = PairCarrier(join, pb.StageMessage, *arguments)

    @property
    def sent_bytes(self) -> int:
        beside = 0 if self._carrier is None else self._carrier.sent_bytes
        return self._stream_bytes + beside

    def send(self, payload: bytes) -> None:
        """Queue a payload; on the loop's thread."""
        if self._carrier is not None:
            self._carrier.send(payload)
        else:
            self._put(payload)

    def close(self) -> None:
        """End what carries the payloads beside the stream."""
        if self._carrier is not None:
            self._carrier.close()

    def _put(self, payload: bytes) -> None:
        self._stream_bytes += len(payload)
        self._announce(payload)

    def _announce(self, payload: bytes) -> None:
        """Queue what is no payload itself, and so is not counted."""
        self._said = True
        self.outgoing.put(payload)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return the next payload to send; no generator, for those cannot be closed while they
        wait."""
        payload = await self.outgoing.get()
        if payload is END:
            raise StopAsyncIteration
        return payload

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
        if self._carrier is not None:
            incoming = self._carrier.payloads(incoming, pb.StageMessage)
        reading = asyncio.create_task(self._read(incoming, arrived, call))
        watching = asyncio.create_task(self._watch(silence))
        full = asyncio.create_task(self.outgoing.full.wait())
        lost = asyncio.create_task(self._lost.get())
        try:
            await asyncio.wait((reading, watching, full, lost), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            if full.done() and not reading.done():
                raise StageLost(f"{self.name}: {self.outgoing.violation()}")
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
            raise StageLost(await final_reason(self.name, error, call)) from None
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
                self.outgoing.put(SIGN_OF_LIFE)
            self._said = False
            silent = 0 if self._came else silent + 1
            self._came = False
        raise StageLost(f"{self.name} was silent for {silence:g} s")


async def final_reason(name: str, error: grpc.aio.AioRpcError, call: Any) -> str:
    """Return `reason`, of the peer's own status where a write that failed was noticed first.

    grpcio then says INTERNAL, "Internal error from Core", until the status has come.
    """
    code, details = error.code(), error.details()
    late = asyncio.get_running_loop().time() + STATUS_SECONDS
    while code is grpc.StatusCode.INTERNAL and call is not None:
        if asyncio.get_running_loop().time() > late:
            break
        await asyncio.sleep(STATUS_SECONDS / 50)
        code, details = await call.code(), await call.details()
    return in_words(name, code, details)


def reason(name: str, error: grpc.aio.AioRpcError) -> str:
    """Return in words why a stream ended."""
    return in_words(name, error.code(), error.details())


def in_words(name: str, code: grpc.StatusCode, details: str | None) -> str:
    """Return a status as its stage said it, or with the stage's name."""
    details = details or ""
    return details if details.startswith("stage ") else f"{name}: {code.name}: {details}"
