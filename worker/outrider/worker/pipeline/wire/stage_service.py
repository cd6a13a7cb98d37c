"""The service `Stage` of one stage: groups of streams that begin, live and end as one.

Runs on the asyncio loop of the stage's server; records go to the thread that computes. Leaves the
records to `Stage`, and their ranges to `limits`.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import grpc

from outrider.contract.settings import PeerSettings
from outrider.worker.errors import ProtocolViolation, StageLost, StageRefused
from outrider.worker.host.peers import AllowedCaller
from outrider.worker.link.distributed import join
from outrider.worker.link.payload_stream import END
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.stage_loop import StageLinks
from outrider.worker.pipeline.wire import hello
from outrider.worker.pipeline.wire.codec import Codec
from outrider.worker.pipeline.wire.hello import Group, StageIdentity
from outrider.worker.pipeline.wire.limits import RecordLimits
from outrider.worker.pipeline.wire.mailbox import Mailbox
from outrider.worker.pipeline.wire.outgoing_stream import (
    COLLECT,
    RUN,
    SERVICE,
    OutgoingStream,
    StageAddress,
)
from outrider.worker.pipeline.wire.stream import HELLO_SECONDS, StageStream

logger = logging.getLogger(__name__)

Context = Any
BROKEN_RULES = "a message breaks the rules"


class StageService:
    """Streams of one stage; it has one group at a time."""

    def __init__(
        self,
        own: StageIdentity,
        limits: RecordLimits,
        next_address: str,
        on_group: Callable[[StageLinks], None],
        peers: PeerSettings | None = None,
    ) -> None:
        """`on_group` takes the links of each group that has come up; `peers`: certificates that the
        stages know each other by."""
        self.own = own
        self._limits = limits
        self._next_address = next_address
        self._on_group = on_group
        self._peers = peers
        self._admission = AllowedCaller(None if peers is None else peers.target)
        self._group: GroupLinks | None = None
        self._claimed = False

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of a gRPC server; payloads stay bytes in both directions."""
        methods: dict[str, Any] = {
            name: grpc.stream_stream_rpc_method_handler(method)
            for name, method in ((RUN, self.run), (COLLECT, self.collect))
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def run(self, incoming: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Serve the stream of the leader or of the stage before."""
        await self._admission.check(context)
        async with refusals(context):
            first, group = await self._accept(incoming)
            links = await self._begin(group)
        try:
            yield hello.answer(self.own, group, links.behind)
            self._on_group(links)
            links.begin(incoming, first)
            async for payload in links.before:
                yield payload
            await end(context, links)
        finally:
            links.close(f"{links.before.name} has gone")
            self._group = None
            self._claimed = False
            await links.ended()

    async def collect(
        self, incoming: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[bytes]:
        """Serve the stream on which the leader gets the results; of the last stage."""
        await self._admission.check(context)
        async with refusals(context):
            first, group = await self._accept(incoming)
            links = self._collected(group)
        try:
            yield hello.answer(self.own, group, ())
            links.watch_leader(incoming, first)
            async for payload in links.results:
                yield payload
            await end(context, links)
        finally:
            links.close("the leader ended the stream of results")

    def close(self) -> None:
        """End the group, if there is one: this stage stops."""
        if self._group is not None:
            self._group.close(f"{self.own} stops")

    async def _accept(self, incoming: AsyncIterator[bytes]) -> tuple[bytes, Group]:
        """Return Hello as it came, and the group that it is of."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await anext(incoming)
        except TimeoutError:
            late = f"{self.own}: no Hello came within {HELLO_SECONDS:.0f} s"
            raise StageRefused(late) from None
        except StopAsyncIteration:
            raise StageRefused(f"{self.own}: the stream ended before Hello") from None
        return first, hello.accept_hello(self.own, first)

    async def _begin(self, group: Group) -> "GroupLinks":
        """Take part in a group, with all stages behind; raises as `OutgoingStream.open`."""
        if self._claimed:
            raise StageLost(f"{self.own} takes part in another group")
        self._claimed = True
        try:
            behind = None
            if not self.own.is_last:
                behind = await OutgoingStream.open(
                    StageAddress(self._next_address, self._peers),
                    RUN,
                    group,
                    self.own.facts.stage + 1,
                    self.own.facts.layers.last,
                )
        except BaseException:
            self._claimed = False
            raise
        self._group = GroupLinks(self.own, group, self._limits, behind)
        return self._group

    def _collected(self, group: Group) -> "GroupLinks":
        if not self.own.is_last:
            raise StageRefused(f"{self.own}: it has no results; stage {self.own.stages - 1} has")
        links = self._group
        if links is None or links.group.number != group.number or links.is_collected:
            raise StageLost(f"{self.own}: its group is not {group.number}, or has its results")
        links.is_collected = True
        return links


class GroupLinks(Mailbox[Record]):
    """Links of one stage in one group.

    Its stage's thread calls `send`, `poll`, `receive` and `close`; all else is the loop's.
    """

    def __init__(
        self,
        own: StageIdentity,
        group: Group,
        limits: RecordLimits,
        behind: OutgoingStream | None,
    ) -> None:
        super().__init__(asyncio.get_running_loop())
        self.group = group
        before = own.facts.stage - 1
        self.before = StageStream("the leader" if before < 0 else f"stage {before}")
        self.results = StageStream("the leader")
        """What the leader collects; of the last stage."""
        self.is_collected = False
        self._own = own
        self._behind = behind
        self._codec = Codec(group.hidden_format, own.hidden)
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def behind(self) -> Sequence[hello.StageFacts]:
        """Facts of the stages behind this one."""
        return () if self._behind is None else self._behind.facts

    def told(self, reason: str) -> str:
        """Return what the others are told: which stage it was that saw it."""
        return reason if reason.startswith("stage ") else f"stage {self._own.facts.stage}: {reason}"

    @property
    def sent_bytes(self) -> int:
        return (self._behind or self.results).sent_bytes

    def send(self, message: Record | Results) -> None:
        """Send to the next stage; of the last, to the leader."""
        out = self._behind or self.results
        self.on_loop(out.send, self._codec.encode(message))

    def close(self, reason: str) -> None:
        """End the group."""
        self.end(reason)

    def begin(self, incoming: AsyncIterator[bytes], first: bytes) -> None:
        """Carry records from now on; `first`: Hello of who sends them."""
        self._join(self.before, first)
        self._start(self.before.carry(incoming, self.group.silence, self.put))
        if self._behind is not None:
            self._start(self._behind.carry_group(self.group, self._refuse))

    def watch_leader(self, incoming: AsyncIterator[bytes], first: bytes) -> None:
        """End the group when the leader is silent on the stream of results; `first`: its Hello."""
        self._join(self.results, first)
        self._start(self.results.carry(incoming, self.group.silence, self._refuse))

    async def ended(self) -> None:
        """Wait until the stream to the next stage has ended."""
        for task in self._tasks:
            task.cancel()
        if self._behind is not None:
            await self._behind.end()

    def _join(self, stream: StageStream, first: bytes) -> None:
        """Join the party that said this Hello, in a distributed group."""
        if self.group.distributed:
            stream.join(functools.partial(join, hello.meeting_of(first)), stream.lost.put_nowait)

    def decode(self, payload: bytes) -> Record | None:
        """Parse and check a payload; raises `ProtocolViolation`."""
        message = self._codec.decode(payload)
        if isinstance(message, Results):
            raise ProtocolViolation("results are for the leader")
        if message is not None:
            self._limits.check(message)
        if isinstance(message, Segment):
            return dataclasses.replace(message, arrived=time.monotonic())
        return message

    def _refuse(self, payload: bytes) -> None:
        """Take a sign of life, and nothing else."""
        if payload:
            self.close(f"{BROKEN_RULES}: {len(payload)} bytes came against the stream of records")

    def end_streams(self, reason: str) -> None:
        """End the streams of those before."""
        logger.warning("%s: the group has ended: %s", self._own, reason)
        for stream in (self.before, self.results):
            self.on_loop(stream.put, END)

    def _start(self, carry: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await carry
            except StageLost as error:
                self.close(str(error))
            except Exception as error:
                logger.exception("a stream of this stage failed")
                self.close(f"it failed: {type(error).__name__}: {error}")

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.asynccontextmanager
async def refusals(context: Context) -> AsyncIterator[None]:
    """Answer a Hello that cannot be accepted with the reason."""
    try:
        yield
    except (StageRefused, ProtocolViolation) as error:
        logger.warning("refused a group: %s", error)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except StageLost as error:
        logger.warning("a group cannot begin: %s", error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


async def end(context: Context, links: GroupLinks) -> None:
    """End a stream of a group that has ended, with the reason."""
    reason = links.closed or ""
    broke = reason.startswith(BROKEN_RULES)
    status = grpc.StatusCode.INVALID_ARGUMENT if broke else grpc.StatusCode.UNAVAILABLE
    await context.abort(status, links.told(reason))
