"""Links through torch.distributed: payloads of a gRPC stream travel beside it, announced on it.

For links of drafts and of stages alike. The two processes meet in a store of one, whose port and a
random prefix the other is told; these protect nothing: whoever reaches the port may join
(docs/decisions/0018). Hello, liveness and the reason of an end stay on the stream. Leaves what
payloads hold to the callers, and torch, which is loaded where a pair is joined, to `process_pair`.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, PeerLeft, ProtocolViolation, WorkerError
from outrider.worker.host.address import address_towards

if TYPE_CHECKING:
    from outrider.worker.link.process_pair import ProcessPair

SECONDS = 15.0
"""Longest that one side waits for the other. torch's store asks DNS for the name of the address it
connects to: 5 seconds for each answer that is lost, seen in 1 of 20 joinings on loopback."""
LEFT_SECONDS = 1.0
"""Longest that the stream has for saying why the other has left."""
PREFIX_BYTES = 16
MAX_PORT = 1 << 16
HOST, GUEST = 0, 1
"""Numbers of the two in their group: whoever opened the store, and the other."""


@dataclass(frozen=True, slots=True)
class PairRendezvous:
    """An open store, for one other process: a target's for a draft, a stage's for the next one."""

    host: str
    """Address of this process, as the other reaches it."""
    port: int
    prefix: str
    store: Any

    def offer(self) -> pb.Rendezvous:
        """Return what the other has to know."""
        return pb.Rendezvous(host=self.host, port=self.port, prefix=self.prefix)

    def join(self) -> "ProcessPair":
        """Wait for the other; raise `LinkBroken`."""
        return _pair(self.store, self.prefix, HOST, self.host)


def require() -> None:
    """Load what joining takes, a matter of seconds; raise `LinkBroken`, saying what is missing."""
    from outrider.worker.host.rendezvous import lacking

    if missing := lacking():
        raise LinkBroken(missing)
    from outrider.worker.link import process_pair  # noqa: F401


def open_rendezvous(other: str) -> PairRendezvous:
    """Open a store for the process at an address; raise `LinkBroken`."""
    from outrider.worker.host.rendezvous import open_store

    host = other.rpartition(":")[0].strip("[]")
    try:
        own = address_towards(host)
        store, port = open_store("", 0, 2, SECONDS)
    except (OSError, RuntimeError) as error:
        raise LinkBroken(f"{other} has nowhere to join: {error}") from None
    return PairRendezvous(own, port, secrets.token_hex(PREFIX_BYTES), store)


def join(offer: pb.Rendezvous) -> "ProcessPair":
    """Join the process that sent `offer`; raise `LinkBroken`."""
    from outrider.worker.host.rendezvous import join_store

    where = f"{offer.host}:{offer.port}"
    if not 0 < offer.port < MAX_PORT:
        raise LinkBroken(f"the store at {where} cannot be joined: there is no such port")
    try:
        own = address_towards(offer.host)
        store = join_store(offer.host, offer.port, 2, SECONDS)
    except (OSError, RuntimeError) as error:
        raise LinkBroken(f"the store at {where} cannot be joined: {error}") from None
    return _pair(store, offer.prefix, GUEST, own)


def _pair(store: Any, prefix: str, number: int, host: str) -> "ProcessPair":
    from outrider.worker.host.rendezvous import prefix_store
    from outrider.worker.link.process_pair import ProcessPair

    return ProcessPair(prefix_store(prefix, store), number, host, SECONDS)


class DistributedPayloads:
    """Payloads of one stream, both ways: a thread sends them, another one receives them."""

    def __init__(
        self,
        join: "Callable[[], ProcessPair]",
        said: type[Any],
        announce: Callable[[bytes], None],
        lost: Callable[[WorkerError], None],
        max_bytes: int,
        max_unread: int,
    ) -> None:
        """Begin to join, on a thread; what is sent before the other has joined waits for it.

        `said`: the message of the stream whose field `announced` says how many bytes follow;
        `announce` sends one. `lost` is called on this loop with the reason why nothing more can be
        sent. `max_bytes`: largest payload of the other; `max_unread`: bytes that may wait for it.
        """
        self._loop = asyncio.get_running_loop()
        self._said = said
        self._announce = announce
        self._lost = lost
        self._max_bytes = max_bytes
        self._max_unread = max_unread
        self._closed = threading.Event()
        self._sending, self._receiving = (ThreadPoolExecutor(1, way) for way in ("out", "in"))
        self.sent_bytes = self._gone_bytes = 0
        """Each changed by one thread alone."""
        self.joined: Future[ProcessPair] = self._sending.submit(join)
        """The pair, once the other has joined; else why it has not."""
        self.joined.add_done_callback(partial(self._sent, 0))

    def send(self, payload: bytes) -> None:
        """Announce a payload, and send it after all others; for one thread."""
        if self._closed.is_set():
            return
        self._announce(self._said(announced=len(payload)).SerializeToString())
        self.sent_bytes += len(payload)
        if self.sent_bytes - self._gone_bytes > self._max_unread:
            self._lose(ProtocolViolation(f"more than {self._max_unread} bytes were left unread"))
        sent = self._sending.submit(lambda: self.joined.result().send(payload))
        sent.add_done_callback(partial(self._sent, len(payload)))

    async def payloads(
        self, stream: AsyncIterator[bytes], heard: type[Any]
    ) -> AsyncIterator[bytes]:
        """Yield what a stream announces, in order, and what it says itself.

        `heard`: the message of the stream. Raises what the stream does, `ProtocolViolation` for a
        payload that is too large, and `LinkBroken` if one does not come.
        """
        async for payload in stream:
            size = _announced(heard, payload)
            if size > self._max_bytes:
                raise ProtocolViolation(f"a message of {size} bytes; {self._max_bytes} are allowed")
            if not size:
                yield payload
                continue
            if self._closed.is_set():
                return
            coming = self._receiving.submit(self._receive, size)
            try:
                received = await asyncio.wrap_future(coming)
            except PeerLeft as error:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LEFT_SECONDS):
                        async for _ in stream:
                            pass
                        return
                raise LinkBroken(str(error)) from None
            yield received

    def close(self) -> None:
        """End the connections, now or once they are there; what waits is dropped."""
        self._closed.set()
        for way in (self._sending, self._receiving):
            way.shutdown(wait=False, cancel_futures=True)
        self.joined.add_done_callback(_close)

    def _receive(self, size: int) -> bytes:
        return self.joined.result().receive(size)

    def _sent(self, size: int, done: "Future[Any]") -> None:
        """Count what was sent, on its thread; a peer that has left ends its stream, too."""
        self._gone_bytes += size
        error = None if done.cancelled() else done.exception()
        seconds = LEFT_SECONDS if isinstance(error, PeerLeft) else 0.0
        if error is not None and not self._closed.wait(seconds):
            self._lose(LinkBroken(str(error) or type(error).__name__))

    def _lose(self, error: WorkerError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(self._lost, error)


def _announced(message: type[Any], payload: bytes) -> int:
    """Return the bytes that a message announces; 0: it is another one, or none."""
    try:
        return int(message.FromString(payload).announced)
    except DecodeError:
        return 0


def _close(joined: "Future[ProcessPair]") -> None:
    if not joined.cancelled() and joined.exception() is None:
        joined.result().close()
