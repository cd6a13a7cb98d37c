"""The draft's side of the links: the `DrafterService.Pair` method.

Turns bytes into messages and back, off the engine's path. A direct link, through shared memory, is
the engine's own; its stream is here, for liveness. Leaves sessions and trees to the engine.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.errors import (
    LinkBroken,
    PairRefused,
    PeerLeft,
    ProtocolViolation,
    WorkerError,
)
from outrider.worker.host.peers import EVERYBODY, AllowedCaller
from outrider.worker.link import handshake, payloads
from outrider.worker.link.choice import accept_choice, must_choose
from outrider.worker.link.client import HELLO_SECONDS
from outrider.worker.link.distributed import LEFT_SECONDS, join
from outrider.worker.link.handshake import TargetHello
from outrider.worker.link.meeting import LinkMemory, MeetingPlace
from outrider.worker.link.payload_stream import END, PayloadStream
from outrider.worker.link.rate_limit import UNREAD_BYTES, TokenBucket, max_bytes_of_target
from outrider.worker.link.wire import Close
from outrider.worker.messages import (
    DirectLinkLost,
    DirectLinkUp,
    FromPeer,
    Identity,
    LinkDown,
    LinkUp,
    ToPeer,
)

logger = logging.getLogger(__name__)

SERVICE = "outrider.protos.v1.Drafter"
OPTIONS = (("grpc.http2.min_ping_interval_without_data_ms", 5_000),)
"""Options of a server with this service: targets look every 10 seconds whether a silent stream is
alive. Without it gRPC ends the connection at the third look ("too many pings")."""


class TargetStream(PayloadStream):
    """Stream of one target."""

    def __init__(self, own: Identity) -> None:
        max_bytes = max_bytes_of_target(own.context)
        super().__init__(pb.DraftMessage, pb.TargetMessage, max_bytes, UNREAD_BYTES)
        self.memory: LinkMemory | None = None
        """Memory that the engine itself reads and writes; nothing is sent here then."""
        self.error: WorkerError | None = None
        """Reason why it ends."""

    def end(self, error: WorkerError | None = None) -> None:
        """End it after what is queued; the first error counts."""
        self.error = self.error or error
        self.put(END)

    def lose(self, error: WorkerError) -> None:
        """End it for a link that has lost what carries it.

        A target that has left ends its stream too: that is waited for, a moment.
        """
        if isinstance(error, PeerLeft):
            loop = asyncio.get_running_loop()
            loop.call_later(LEFT_SECONDS, self.end, LinkBroken(str(error)))
        else:
            self.end(error)


@dataclass(slots=True)
class SendQueues:
    """Streams of the targets, as the engine's messages reach them."""

    by_link: dict[int, TargetStream] = field(default_factory=dict)

    def send(self, messages: Sequence[ToPeer | DirectLinkLost]) -> None:
        """Queue messages of the engine; drop those for a link that has ended."""
        for message in messages:
            stream = self.by_link.get(message.link)
            if stream is None:
                continue
            if isinstance(message, DirectLinkLost):
                stream.lose(message.error)
            elif stream.memory is None:
                stream.send(payloads.for_target(message.messages))


@dataclass(slots=True)
class DrafterService:
    """Streams of all targets, by link number."""

    identity: Identity
    to_engine: Callable[[object], None]
    queues: SendQueues
    meeting: MeetingPlace | None = None
    """Where it takes memory of targets; None: it shares none."""
    admission: AllowedCaller = EVERYBODY
    """Who may open streams."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of a gRPC server; payloads stay bytes in both directions."""
        method: Any = grpc.stream_stream_rpc_method_handler(self.pair)
        return grpc.method_handlers_generic_handler(SERVICE, {"Pair": method})

    async def pair(
        self, incoming: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[bytes]:
        """Serve one stream: Hello both ways, then messages both ways."""
        await self.admission.check(context)
        offer = self.meeting.offer() if self.meeting is not None else None
        stream = TargetStream(self.identity)
        try:
            yield handshake.hello_to_target(self.identity, offer)
            async with asyncio.timeout(HELLO_SECONDS):
                target = handshake.accept_target(self.identity, await anext(incoming))
                tokens = await self._tokens(target, incoming)
                if must_choose(self.identity, self.meeting, target):
                    choice = await anext(incoming)
                    self._choose(stream, choice, self._handed_over(offer))
            await stream.joined()
            link = next(self._numbers)
            up = self._up(
                LinkUp(link, tokens.allowed, translation=tokens.translation), stream.memory
            )
        except (PairRefused, ProtocolViolation) as error:
            logger.warning("refused a target: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except LinkBroken as error:
            logger.warning("a link cannot come up: %s", error)
            await context.abort(status(error), str(error))
        except TimeoutError:
            late = f"no Hello came within {HELLO_SECONDS:.0f} s"
            logger.warning("refused a target: %s", late)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, late)
        except StopAsyncIteration:
            return
        finally:
            self._forget(offer)
        self.queues.by_link[link] = stream
        self.to_engine(up)
        reader = asyncio.create_task(self._read(link, incoming, stream))
        watch = asyncio.create_task(self._end_unread(link, stream, context))
        try:
            async for payload in stream:
                yield payload
            if stream.error is not None:
                logger.warning("link %d: %s", link, stream.error)
                await context.abort(status(stream.error), str(stream.error))
        finally:
            reader.cancel()
            watch.cancel()
            self._down(link)
            stream.close()

    async def _tokens(self, target: TargetHello, incoming: AsyncIterator[bytes]) -> TargetTokens:
        """Return a target's tokens; raises as `accept_vocabulary`."""
        if target.allowed is not None:
            return TargetTokens(target.allowed)
        accept = handshake.accept_vocabulary
        found = await asyncio.to_thread(accept, self.identity, target, await anext(incoming))
        logger.info(
            "a target of another tokenizer: %.0f %% of this draft's tokens are its own, too",
            100 * found.share,
        )
        return TargetTokens(found.allowed, found)

    def _handed_over(self, offer: pb.Meeting | None) -> LinkMemory | None:
        """Return the memory that came on an offer."""
        if self.meeting is None or offer is None:
            return None
        return self.meeting.take(offer)

    def _choose(self, stream: TargetStream, payload: bytes, memory: LinkMemory | None) -> None:
        """Have a stream carry messages as its target chose.

        Memory that was not chosen is closed. Raises as `accept_choice`.
        """
        try:
            choice = accept_choice(self.identity, payload, memory)
            if choice.transport == pb.LINK_TRANSPORT_SHARED_MEMORY:
                stream.memory = memory
        finally:
            if memory is not None and stream.memory is None:
                memory.close()
        if choice.transport == pb.LINK_TRANSPORT_DISTRIBUTED:
            stream.join(partial(join, choice.rendezvous), stream.end)

    def _forget(self, offer: pb.Meeting | None) -> None:
        """End an offer; give up memory that came on it and was not chosen."""
        memory = self._handed_over(offer)
        if memory is not None:
            memory.close()

    def _up(self, up: LinkUp, memory: LinkMemory | None) -> LinkUp | DirectLinkUp:
        """Return the news of a link; raise `LinkBroken`, with memory closed."""
        if memory is None:
            return up
        from outrider.worker.link import shared_memory  # loads numba

        return shared_memory.direct_link(up, memory, self.identity, shared_memory.draft_end)

    async def _read(self, link: int, incoming: AsyncIterator[bytes], stream: TargetStream) -> None:
        """Hand messages to the engine until the stream ends, then end it here."""
        own = self.identity
        token_bucket = TokenBucket.of_target(time.monotonic(), own.context, own.sessions)
        try:
            async for payload in stream.payloads(incoming):
                if stream.full.is_set():
                    return
                token_bucket.spend(len(payload), time.monotonic())
                messages = payloads.from_target(payload)
                token_bucket.spend_records(len(messages), time.monotonic())
                for message in messages:
                    if message.session == 0 and isinstance(message, Close):
                        return
                    if message.session == 0:
                        words = "session 0 stands for the stream; it can only be closed"
                        raise ProtocolViolation(words)
                if stream.memory is not None:
                    raise ProtocolViolation("the messages of this link do not go over its stream")
                self.to_engine(FromPeer(link, messages))
        except (LinkBroken, ProtocolViolation) as error:
            stream.end(error)
        finally:
            stream.end()

    async def _end_unread(
        self, link: int, stream: TargetStream, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        """End the stream of a target that leaves too much unread, while a write waits for it."""
        await stream.full.wait()
        violation = stream.violation()
        logger.warning("link %d: %s", link, violation)
        self._down(link)
        with contextlib.suppress(grpc.aio.AbortError):  # it is for handlers, which this is not
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(violation))

    def _down(self, link: int) -> None:
        """Send the engine, once, that a link has ended."""
        if self.queues.by_link.pop(link, None) is not None:
            self.to_engine(LinkDown(link))


def status(error: WorkerError) -> grpc.StatusCode:
    """Return the status with which a stream ends."""
    broke = isinstance(error, LinkBroken)
    return grpc.StatusCode.DATA_LOSS if broke else grpc.StatusCode.INVALID_ARGUMENT
