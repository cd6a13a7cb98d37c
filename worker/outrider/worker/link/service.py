"""The draft's side of the links: the `DrafterService.Pair` method.

Turns bytes into messages and back, off the engine's path. Leaves sessions and trees to the engine.
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
class SendQueues:
    """Send queues of the targets' streams."""

    by_link: dict[int, SendQueue] = field(default_factory=dict)

    def send(self, messages: Sequence[ToPeer]) -> None:
        """Queue messages of the engine; drop those for a link that has ended."""
        for message in messages:
            queue = self.by_link.get(message.link)
            if queue is not None:
                queue.put(encode_for_target(message.messages))


@dataclass(slots=True)
class DrafterService:
    """Streams of all targets, by link number."""

    identity: Identity
    to_engine: Callable[[object], None]
    queues: SendQueues
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of a gRPC server; payloads stay bytes in both directions."""
        method: Any = grpc.stream_stream_rpc_method_handler(self.pair)
        return grpc.method_handlers_generic_handler(SERVICE, {"Pair": method})

    async def pair(
        self, incoming: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[bytes]:
        """Serve one stream: Hello both ways, then messages both ways."""
        yield handshake.hello_to_target(self.identity)
        link = next(self._numbers)
        try:
            first = await asyncio.wait_for(anext(incoming), HELLO_SECONDS)
            allowed = handshake.accept_target(self.identity, first)
        except (PairRefused, ProtocolViolation) as error:
            logger.warning("refused a target: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except TimeoutError:
            late = f"no Hello came within {HELLO_SECONDS:.0f} s"
            logger.warning("refused a target: %s", late)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, late)
        except StopAsyncIteration:
            return
        queue = self.queues.by_link[link] = SendQueue()
        self.to_engine(LinkUp(link, allowed))
        reader = asyncio.create_task(self._read(link, incoming, queue))
        watch = asyncio.create_task(self._end_unread(link, queue, context))
        try:
            while (payload := await queue.get()) != END:
                yield payload
            if (violation := await reader) is not None:
                logger.warning("link %d: %s", link, violation)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(violation))
        finally:
            reader.cancel()
            watch.cancel()
            self._down(link)

    async def _read(
        self, link: int, incoming: AsyncIterator[bytes], queue: SendQueue
    ) -> ProtocolViolation | None:
        """Hand messages to the engine until the stream ends; return its violation, if any."""
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
        """End the stream of a target that leaves too much unread, while a write waits for it."""
        await queue.full.wait()
        violation = queue.violation()
        logger.warning("link %d: %s", link, violation)
        self._down(link)
        with contextlib.suppress(grpc.aio.AbortError):  # it is for handlers, which this is not
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(violation))

    def _down(self, link: int) -> None:
        """Send the engine, once, that a link has ended."""
        if self.queues.by_link.pop(link, None) is not None:
            self.to_engine(LinkDown(link))


def ended_by(message: FromTarget) -> ProtocolViolation | None:
    """Return the violation of a message for session 0, the stream itself; None for a Close."""
    if isinstance(message, Close):
        return None
    return ProtocolViolation("session 0 stands for the stream; it can only be closed")
