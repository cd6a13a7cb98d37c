"""The draft's side of the links: the `DrafterService.Pair` method.

Turns bytes into messages and back, off the engine's path; sessions and trees are the engine's.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from outrider.protos.v1 import drafter_pb2
from outrider.worker.errors import PairRefused, ProtocolViolation
from outrider.worker.link import handshake
from outrider.worker.link.client import HELLO_SECONDS
from outrider.worker.link.codec import decode_from_target, encode_for_target
from outrider.worker.link.rate_limit import TokenBucket
from outrider.worker.link.send_queue import SendQueue
from outrider.worker.link.wire import Close, FromTarget
from outrider.worker.messages import FromPeer, Identity, LinkDown, LinkUp, ToPeer

logger = logging.getLogger(__name__)

SERVICE = "outrider.protos.v1.Drafter"
END: bytes = b""


@dataclass(slots=True)
class DrafterService:
    """Every target's stream, by link number."""

    identity: Identity
    to_engine: Callable[[object], None]
    _outgoing: dict[int, SendQueue] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server registers: payloads stay bytes in both directions."""
        method: Any = grpc.stream_stream_rpc_method_handler(self.pair)
        return grpc.method_handlers_generic_handler(SERVICE, {"Pair": method})

    def send(self, messages: Sequence[ToPeer]) -> None:
        """Queues messages of the engine; for a link that has ended they are dropped."""
        for message in messages:
            queue = self._outgoing.get(message.link)
            if queue is not None:
                queue.put(encode_for_target(message.messages))

    async def pair(
        self, incoming: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[bytes]:
        """One stream: Hello both ways, then bytes both ways."""
        own = drafter_pb2.DraftMessage(hello=handshake.hello(self.identity))
        yield own.SerializeToString()
        link = next(self._numbers)
        try:
            first = await asyncio.wait_for(anext(incoming), HELLO_SECONDS)
            allowed = handshake.agreed_by_draft(self.identity, handshake.hello_from_target(first))
        except (PairRefused, ProtocolViolation) as error:
            logger.warning("refused a target: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except TimeoutError:
            late = f"no Hello came within {HELLO_SECONDS:.0f} s"
            logger.warning("refused a target: %s", late)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, late)
        except StopAsyncIteration:
            return
        queue = self._outgoing[link] = SendQueue()
        self.to_engine(LinkUp(link, allowed))
        reader = asyncio.create_task(self._read(link, incoming, queue))
        watch = asyncio.create_task(self._end_unread(link, queue, context))
        try:
            while (payload := await queue.get()) != END:
                yield payload
            if (wrong := await reader) is not None:
                logger.warning("link %d: %s", link, wrong)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(wrong))
        finally:
            reader.cancel()
            watch.cancel()
            self._down(link)

    async def _read(
        self, link: int, incoming: AsyncIterator[bytes], queue: SendQueue
    ) -> ProtocolViolation | None:
        """Hands over what comes until the stream ends; returns what was wrong with it."""
        own = self.identity
        token_bucket = TokenBucket.of_target(time.monotonic(), own.context, own.sessions)
        try:
            async for payload in incoming:
                if queue.full.is_set():
                    return None
                token_bucket.spend(len(payload), time.monotonic())
                message = decode_from_target(payload)
                if message.session == 0:
                    return ended_by(message)
                self.to_engine(FromPeer(link, (message,)))
        except ProtocolViolation as error:
            return error
        finally:
            queue.put(END)
        return None

    async def _end_unread(
        self, link: int, queue: SendQueue, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        """Ends the stream of a target that leaves too much unread, while a write waits for it."""
        await queue.full.wait()
        wrong = queue.violation()
        logger.warning("link %d: %s", link, wrong)
        self._down(link)
        with contextlib.suppress(grpc.aio.AbortError):  # it is for handlers, which this is not
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(wrong))

    def _down(self, link: int) -> None:
        """Tells the engine, once, that a link is no more."""
        if self._outgoing.pop(link, None) is not None:
            self.to_engine(LinkDown(link))


def ended_by(message: FromTarget) -> ProtocolViolation | None:
    """What is wrong with a message for session 0, the stream itself: nothing if it closes it."""
    if isinstance(message, Close):
        return None
    return ProtocolViolation("session 0 stands for the stream; it can only be closed")
