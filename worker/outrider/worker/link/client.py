"""The target's streams to its drafts: connect, say Hello, carry bytes, connect again.

Runs on a thread of the engine's process, where bytes become messages: that is off the path of the
engine's loop, which owns sessions and trees. A draft that is lost costs nothing but its guesses:
the engine is told that the link is down, and connecting is tried again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np
from numpy.typing import NDArray

from outrider.protos.v1 import control_pb2, drafter_pb2
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.link import handshake
from outrider.worker.link.codec import decode_from_draft, encode_for_draft
from outrider.worker.link.rate_limit import (
    TOKEN_BYTES,
    TokenBucket,
    largest_of_draft,
)
from outrider.worker.link.send_queue import UNREAD_BYTES, SendQueue
from outrider.worker.messages import FromPeer, Identity, LinkDown, LinkStates, LinkUp, Room, ToPeer

logger = logging.getLogger(__name__)

PAIR = "/outrider.protos.v1.Drafter/Pair"
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
REFUSED_RETRY_SECONDS = 10.0
HELLO_SECONDS = 10.0
MAX_HELLO_BYTES = 1 << 20
"""Of a Hello, with the hashes of its vocabulary."""
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


@dataclass(slots=True)
class _Link:
    """One address, for as long as the policy names it."""

    address: str
    task: asyncio.Task[None] | None = None
    state: "control_pb2.LinkState.ValueType" = control_pb2.LINK_STATE_CONNECTING
    detail: str = ""
    revision: str = ""
    incarnation: int = 0

    def to_bytes(self) -> bytes:
        """As `ControlService.GetState` reports it."""
        return control_pb2.Link(
            address=self.address,
            state=self.state,
            detail=self.detail,
            revision=self.revision,
            incarnation=self.incarnation,
        ).SerializeToString()


@dataclass(slots=True)
class DraftLinks:
    """Keeps one stream to each draft of the policy."""

    identity: Identity
    to_engine: Callable[[object], None]
    _links: dict[str, _Link] = field(default_factory=dict)
    _outgoing: dict[int, SendQueue] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    """Links that were cancelled and have not ended yet."""
    _next_link: int = 1

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Starts and ends links so that there is one to each of `addresses`."""
        wanted = set(addresses)
        for address in set(self._links) - wanted:
            link = self._links.pop(address)
            if link.task is not None:
                link.task.cancel()
                self._ending.add(link.task)
                link.task.add_done_callback(self._ending.discard)
        for address in wanted - set(self._links):
            link = self._links[address] = _Link(address)
            link.task = asyncio.create_task(self._keep(link), name=f"link to {address}")
        self._tell()

    def send(self, messages: Sequence[ToPeer]) -> None:
        """Queues messages of the engine; for a link that has ended they are dropped."""
        for message in messages:
            queue = self._outgoing.get(message.link)
            if queue is not None:
                for part in message.messages:
                    queue.put(encode_for_draft(part))

    def _tell(self) -> None:
        """Says how every link stands."""
        self.to_engine(LinkStates(tuple(link.to_bytes() for link in self._links.values())))

    async def _keep(self, link: _Link) -> None:
        """Connects again and again, with back-off, until cancelled."""
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._serve(link)
                delay = FIRST_RETRY_SECONDS
                link.state, link.detail = control_pb2.LINK_STATE_CONNECTING, "the stream ended"
            except (PairRefused, ProtocolViolation, grpc.aio.AioRpcError, TimeoutError) as error:
                if link.state == control_pb2.LINK_STATE_UP:
                    delay = FIRST_RETRY_SECONDS
                link.state, link.detail = control_pb2.LINK_STATE_CONNECTING, _reason(error)
                if _refused(error):
                    delay, link.state = REFUSED_RETRY_SECONDS, control_pb2.LINK_STATE_REFUSED
            self._tell()
            logger.warning("no link to the draft at %s: %s", link.address, link.detail)
            await asyncio.sleep(delay)
            delay = max(delay, min(2 * delay, LAST_RETRY_SECONDS))

    async def _serve(self, link: _Link) -> None:
        """One life of one stream."""
        largest = max(MAX_HELLO_BYTES, largest_of_draft(self.identity.sessions))
        options = (*OPTIONS, ("grpc.max_receive_message_length", largest))
        async with grpc.aio.insecure_channel(link.address, options=options) as channel:
            pair: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PAIR)
            outgoing = SendQueue(most_unread(self.identity))
            call = pair(_Queued(outgoing))
            own = drafter_pb2.TargetMessage(hello=handshake.hello(self.identity))
            outgoing.put(own.SerializeToString())
            answers: AsyncIterator[bytes] = aiter(call)
            try:
                first = await asyncio.wait_for(anext(answers), HELLO_SECONDS)
                peer = handshake.hello_from_draft(first)
                allowed = handshake.agreed_by_target(self.identity, peer)
                link.state, link.detail = control_pb2.LINK_STATE_UP, ""
                link.revision, link.incarnation = peer.revision, peer.incarnation
                self._tell()
                room = Room(peer.capacity.sessions, peer.context_length)
                await self._carry(answers, outgoing, allowed, room)
            except StopAsyncIteration:
                raise ProtocolViolation("the stream ended before Hello") from None
            finally:
                call.cancel()

    async def _carry(
        self,
        answers: AsyncIterator[bytes],
        outgoing: SendQueue,
        allowed: NDArray[np.bool_],
        room: Room,
    ) -> None:
        """Tells the engine of the link and carries messages until the stream ends."""
        number = self._next_link
        self._next_link += 1
        self._outgoing[number] = outgoing
        self.to_engine(LinkUp(number, allowed, room))
        logger.info("link %d to a draft is up", number)
        reading = asyncio.create_task(self._read(number, answers))
        full = asyncio.create_task(outgoing.full.wait())
        try:
            await asyncio.wait({reading, full}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise outgoing.violation()
            reading.result()
        finally:
            reading.cancel()
            full.cancel()
            del self._outgoing[number]
            self.to_engine(LinkDown(number))

    async def _read(self, number: int, answers: AsyncIterator[bytes]) -> None:
        """Hands over what comes until the stream ends; raises `ProtocolViolation`."""
        token_bucket = TokenBucket.of_draft(time.monotonic(), self.identity.sessions)
        async for payload in answers:
            token_bucket.spend(len(payload), time.monotonic())
            self.to_engine(FromPeer(number, decode_from_draft(payload)))

    async def close(self) -> None:
        """Ends every link."""
        self.set_addresses(())
        await asyncio.gather(*self._ending, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Queued:
    """Yields what is queued; no generator, for those cannot be closed while they wait."""

    queue: SendQueue

    def __aiter__(self) -> "_Queued":
        return self

    async def __anext__(self) -> bytes:
        return await self.queue.get()


def most_unread(target: Identity) -> int:
    """Bytes that may wait for a draft: all sequences may be opened at once."""
    return UNREAD_BYTES + TOKEN_BYTES * target.context * target.sessions


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def _refused(error: Exception) -> bool:
    """Whether trying again soon is pointless: a side said no, or the draft broke the rules."""
    return isinstance(error, PairRefused | ProtocolViolation) or (
        isinstance(error, grpc.aio.AioRpcError)
        and error.code()
        in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED)
    )
