"""The target's streams to its drafts: connection, Hello, messages, reconnection.

Runs on a thread of the engine's process, where bytes become messages: that is off the path of the
engine's loop, which owns sessions and trees. A direct link, through shared memory, is the engine's
own; its stream is here, for liveness. The loss of a draft costs only its nodes: the engine gets a
`LinkDown`, and connecting is tried again.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from outrider.contract.settings import LinkTransport
from outrider.contract.state import Link, LinkState
from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import (
    LinkBroken,
    PairRefused,
    PeerLeft,
    ProtocolViolation,
    WorkerError,
)
from outrider.worker.host.call_status import final_error
from outrider.worker.host.peers import beyond_loopback, open_channel
from outrider.worker.link import handshake, payloads
from outrider.worker.link.choice import Chosen, choice_message, choose, is_told
from outrider.worker.link.distributed import LEFT_SECONDS
from outrider.worker.link.handshake import DraftHello
from outrider.worker.link.payload_stream import CHANNEL_OPTIONS, END, PayloadStream
from outrider.worker.link.rate_limit import TokenBucket, max_bytes_of_draft, max_unread_bytes
from outrider.worker.link.wire import FromTarget
from outrider.worker.messages import (
    DirectLinkUp,
    FromPeer,
    Identity,
    LinkDown,
    LinkStates,
    LinkUp,
    ToPeer,
)

logger = logging.getLogger(__name__)

PAIR = "/outrider.protos.v1.Drafter/Pair"
HELLO_SECONDS = 10.0
FALLBACK_SECONDS = 60.0
"""Time for which a direct link that broke goes over gRPC at least."""
FIRST_SECONDS = 0.1
LAST_SECONDS = 0.5
"""A draft that returns is used again within a second, however long it was away. A try costs a
connection that nobody takes."""
REFUSED_SECONDS = 10.0
"""After a refusal, which another try soon would meet again."""
MAX_HELLO_BYTES = 4 << 20
"""Most bytes of a Hello, with the hashes of its vocabulary, and of a target's Vocabulary: that of
Gemma 3, one of the largest, takes 1.5 MB."""
OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),  # any number: a stream may be silent for long
)


@dataclass(slots=True)
class _Link:
    """One address, for as long as the policy names it."""

    status: Link
    task: asyncio.Task[None] | None = None
    broke: str = ""
    """Why the link broke last, when it was direct or was to be."""
    fallback_until: float = 0.0
    """Time up to which gRPC stands in."""

    def fall_back(self, error: Exception) -> None:
        """Let gRPC stand in for a direct link, for a while."""
        self.broke, self.fallback_until = reason(error), time.monotonic() + FALLBACK_SECONDS
        logger.warning(
            "the link to the draft at %s goes over gRPC for %.0f s: %s",
            *(self.status.address, FALLBACK_SECONDS, self.broke),
        )


@dataclass(slots=True)
class DraftLinks:
    """Keeps one stream to each draft of the policy."""

    identity: Identity
    to_engine: Callable[[object], None]
    _links: dict[str, _Link] = field(default_factory=dict)
    _streams: dict[int, PayloadStream] = field(default_factory=dict)
    """Payload streams of links that are not direct."""
    _lost: "dict[int, asyncio.Future[WorkerError]]" = field(default_factory=dict)
    """Set when what carries a link beside its stream is lost."""
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    """Links that were cancelled and have not ended yet."""
    _next_link: int = 1

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Start and end links so that there is one to each of `addresses`."""
        wanted = set(addresses)
        for address in set(self._links) - wanted:
            link = self._links.pop(address)
            if link.task is not None:
                link.task.cancel()
                self._ending.add(link.task)
                link.task.add_done_callback(self._ending.discard)
        for address in wanted - set(self._links):
            link = self._links[address] = _Link(Link(address))
            link.task = asyncio.create_task(self._keep(link), name=f"link to {address}")
        self._report()

    def send(self, messages: Sequence[ToPeer]) -> None:
        """Queue messages of the engine; drop those for a link that has ended."""
        by_link: dict[int, list[FromTarget]] = {}
        for message in messages:
            by_link.setdefault(message.link, []).extend(message.messages)
        for link, parts in by_link.items():
            stream = self._streams.get(link)
            if stream is not None:
                for payload in payloads.for_draft(parts):
                    stream.send(payload)

    def lose(self, link: int, error: WorkerError) -> None:
        """End the stream of a link that has lost what carries it."""
        lost = self._lost.get(link)
        if lost is not None and not lost.done():
            lost.set_result(error)

    def _report(self) -> None:
        """Send the engine the state of every link."""
        self.to_engine(LinkStates(tuple(link.status for link in self._links.values())))

    async def _keep(self, link: _Link) -> None:
        """Connect again and again, with back-off, until cancelled; log each reason once."""
        pause, logged = 0.0, ""
        while True:
            try:
                await self._serve(link)
                why, is_refused = "the stream ended", False
            except (WorkerError, grpc.aio.AioRpcError, OSError) as error:
                why, is_refused = reason(error), _refused(error)
                if _broke(error):
                    link.fall_back(error)
            if link.status.state is LinkState.UP:
                pause, logged = 0.0, ""
            state = LinkState.REFUSED if is_refused else LinkState.CONNECTING
            link.status = dataclasses.replace(link.status, state=state, detail=why)
            self._report()
            if why != logged:
                logger.warning("no link to the draft at %s: %s", link.status.address, why)
                logged = why
            pause = next_pause(pause, is_refused)
            await asyncio.sleep(pause)

    async def _serve(self, link: _Link) -> None:
        """Run one stream until it ends."""
        own, max_bytes = self.identity, max_bytes_of_draft(self.identity.sessions)
        largest = max(MAX_HELLO_BYTES, max_bytes)
        options = (*OPTIONS, ("grpc.max_receive_message_length", largest))
        peers = beyond_loopback(own.peers, link.status.address)
        name = peers.draft if peers else ""
        async with open_channel(link.status.address, options, peers, name) as channel:
            pair: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PAIR)
            max_unread = max_unread_bytes(own.context, own.sessions)
            stream = PayloadStream(pb.TargetMessage, pb.DraftMessage, max_bytes, max_unread)
            call = pair(stream)
            stream.put(handshake.hello_to_draft(own))
            answers: AsyncIterator[bytes] = aiter(call)
            try:
                first = await asyncio.wait_for(anext(answers), HELLO_SECONDS)
                draft = handshake.accept_draft(own, first)
                broke = link.broke if time.monotonic() < link.fallback_until else ""
                if draft.translates:
                    stream.put(await asyncio.to_thread(handshake.vocabulary_message, own))
                chosen = await choose(own, link.status.address, draft, broke)
                if is_told(own, draft):
                    stream.put(choice_message(chosen, broke))
                await self._carry(link, answers, stream, draft, chosen)
            except StopAsyncIteration:
                raise ProtocolViolation("the stream ended before Hello") from None
            except grpc.aio.AioRpcError as error:
                raise await final_error(error, call) from None
            finally:
                stream.put(END)  # a call that has ended leaves what reads the stream to itself
                call.cancel()

    async def _carry(
        self,
        link: _Link,
        answers: AsyncIterator[bytes],
        stream: PayloadStream,
        draft: DraftHello,
        chosen: Chosen,
    ) -> None:
        """Announce the link to the engine and carry messages until the stream ends."""
        number = self._next_link
        self._next_link += 1
        lost: asyncio.Future[WorkerError] = asyncio.get_running_loop().create_future()
        self._lost[number] = lost
        is_direct = chosen.transport is LinkTransport.SHARED_MEMORY
        if chosen.rendezvous is not None:
            stream.join(chosen.rendezvous.join, partial(self.lose, number))
        reading = asyncio.create_task(self._read(number, stream.payloads(answers), is_direct))
        full = asyncio.create_task(stream.full.wait())
        ends: tuple[asyncio.Future[Any], ...] = (reading, full, lost)
        is_announced = False
        try:
            up = LinkUp(number, draft.allowed, draft.room)
            news: LinkUp | DirectLinkUp = up
            if chosen.memory is not None:
                from outrider.worker.link import shared_memory  # loads numba

                end_of = shared_memory.target_end
                news = shared_memory.direct_link(up, chosen.memory, self.identity, end_of)
            else:
                if chosen.rendezvous is not None:
                    await _joined(stream, reading)
                self._streams[number] = stream
            self._announce(link, news, draft, chosen)
            is_announced = True
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                await _end_of(reading, lost.result())
            if not reading.done():
                raise stream.violation()
            reading.result()
        finally:
            reading.cancel()
            full.cancel()
            stream.close()
            self._streams.pop(number, None)
            self._lost.pop(number, None)
            if is_announced:
                self.to_engine(LinkDown(number))

    def _announce(
        self, link: _Link, news: LinkUp | DirectLinkUp, draft: DraftHello, chosen: Chosen
    ) -> None:
        """Say that a link is up."""
        link.status = Link(
            link.status.address,
            LinkState.UP,
            chosen.detail,
            draft.revision,
            draft.incarnation,
            chosen.transport,
        )
        self._report()
        self.to_engine(news)
        logger.info(
            "the link to the draft at %s goes through %s %s",
            *(link.status.address, chosen.transport, chosen.detail and f"({chosen.detail})"),
        )

    async def _read(self, number: int, answers: AsyncIterator[bytes], direct: bool) -> None:
        """Hand messages to the engine until the stream ends; raise `ProtocolViolation`."""
        token_bucket = TokenBucket.of_draft(time.monotonic(), self.identity.sessions)
        async for payload in answers:
            if direct:
                raise ProtocolViolation("the messages of this link do not go over its stream")
            token_bucket.spend(len(payload), time.monotonic())
            messages = payloads.from_draft(payload)
            token_bucket.spend_records(len(messages), time.monotonic())
            self.to_engine(FromPeer(number, messages))

    async def close(self) -> None:
        """End every link and wait for that."""
        self.set_addresses(())
        await asyncio.gather(*self._ending, return_exceptions=True)


async def _end_of(reading: "asyncio.Task[None]", error: WorkerError) -> None:
    """Raise the error with which the engine lost a direct link.

    A peer that has left ends its stream too, which may say why: return once it has.
    """
    if isinstance(error, PeerLeft):
        await asyncio.wait({reading}, timeout=LEFT_SECONDS)
        if reading.done():
            return
        error = LinkBroken(str(error))
    raise error


async def _joined(stream: PayloadStream, reading: "asyncio.Task[None]") -> None:
    """Wait until a draft has joined; raise `LinkBroken`, or why it has ended the stream."""
    joined = asyncio.create_task(stream.joined())
    ends: tuple[asyncio.Future[Any], ...] = (joined, reading)
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not joined.done():
            reading.result()
            raise LinkBroken("the stream ended before the draft had joined")
        joined.result()
    finally:
        joined.cancel()


def next_pause(last: float, refused: bool) -> float:
    """Return the seconds until the next try; `last`: those before this one, 0 if a link was up.

    A refusal does not lengthen the pauses after it: what refused may be gone.
    """
    if refused:
        return REFUSED_SECONDS
    return min(2 * last, LAST_SECONDS) if 0 < last < REFUSED_SECONDS else FIRST_SECONDS


def reason(error: Exception) -> str:
    """Return in words why a link ended."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def _broke(error: Exception) -> bool:
    """True if a direct link broke, as either side saw it."""
    return isinstance(error, LinkBroken) or (
        isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.DATA_LOSS
    )


def _refused(error: Exception) -> bool:
    """True if an early retry is useless: a side refused, or the draft broke the protocol."""
    return isinstance(error, PairRefused | ProtocolViolation) or (
        isinstance(error, grpc.aio.AioRpcError)
        and error.code()
        in (
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )
    )
