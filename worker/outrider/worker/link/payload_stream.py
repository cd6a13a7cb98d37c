"""How a link's payloads travel: in a gRPC stream, or by torch.distributed beside it.

The same for both sides of draft links and stage links. Nothing is dropped: a peer that leaves too
much unread loses its stream. Leaves Hello, what payloads hold and ending the stream to the caller.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, Self

from outrider.worker.errors import ProtocolViolation, WorkerError
from outrider.worker.link.distributed import DistributedPayloads

if TYPE_CHECKING:
    from outrider.worker.link.process_pair import ProcessPair

END: Final = b"\xff"
"""In place of a payload: nothing follows. No message begins so."""
CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a peer is on loopback or in the cluster
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Options of the channel of a stream, by the side that opens it."""


class PayloadStream:
    """Our side of one stream; iterating over it yields what the stream is to write."""

    def __init__(self, says: type[Any], hears: type[Any], max_bytes: int, max_unread: int) -> None:
        """`says` and `hears`: protobuf messages of the stream, ours and the peer's, both with a
        field `announced`. `max_bytes`: largest payload of the peer beside the stream; `max_unread`:
        bytes that may wait for it."""
        self.full = asyncio.Event()
        """Set, for good, once more than `max_unread` bytes wait."""
        self._says, self._hears = says, hears
        self._max_bytes, self._max_unread = max_bytes, max_unread
        self._waiting: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._unread = self._sent = 0
        self._beside: DistributedPayloads | None = None

    def join(self, join: "Callable[[], ProcessPair]", lost: Callable[[WorkerError], None]) -> None:
        """Have torch.distributed carry the payloads, both ways, once `join` has met the other; on
        the loop's thread. `lost` is called with the reason why it carries no more."""
        limits = self._max_bytes, self._max_unread
        self._beside = DistributedPayloads(join, self._says, self.put, lost, *limits)

    async def joined(self) -> None:
        """Wait until what carries the payloads is there; raise `LinkBroken`, with it closed."""
        if self._beside is not None:
            try:
                await asyncio.wrap_future(self._beside.joined)
            except BaseException:
                self.close()
                raise

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of all payloads that were sent."""
        return self._sent + (0 if self._beside is None else self._beside.sent_bytes)

    def send(self, payload: bytes) -> None:
        """Send a payload after all others; on the loop's thread."""
        if self._beside is not None:
            self._beside.send(payload)
        else:
            self._sent += len(payload)
            self.put(payload)

    def put(self, payload: bytes) -> None:
        """Have the stream itself write a message; once it is full, free it and take no more."""
        if self.full.is_set():
            return
        self._waiting.append(payload)
        self._unread += len(payload)
        self._arrived.set()
        if self._unread > self._max_unread:
            self._waiting.clear()
            self.full.set()

    def payloads(self, incoming: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the peer's payloads, by what it says on its stream."""
        if self._beside is None:
            return incoming
        return self._beside.payloads(incoming, self._hears)

    def violation(self) -> ProtocolViolation:
        """Return the error of a peer that left too much unread."""
        return ProtocolViolation(f"more than {self._max_unread} bytes were left unread")

    def close(self) -> None:
        """End what carries the payloads beside the stream."""
        if self._beside is not None:
            self._beside.close()

    def __aiter__(self) -> Self:
        """Iterate until `END`; no generator, for those cannot be closed while they wait."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the oldest message to write; for one reader."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        payload = self._waiting.popleft()
        self._unread -= len(payload)
        if payload is END:
            raise StopAsyncIteration
        return payload
