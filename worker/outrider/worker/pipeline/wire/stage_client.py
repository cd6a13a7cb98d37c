"""The leader's links over gRPC: records to stage 0, results from the last stage.

An asyncio loop on another thread runs the streams; one loop runs all of a process's, for grpcio
takes a loop that closes badly while another one lives. Leaves the records to `pipeline.leader`, and
beginning a new group after this one has ended to the caller.
"""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from outrider.contract.settings import PeerSettings
from outrider.worker.errors import ProtocolViolation, StageLost, StageRefused
from outrider.worker.pipeline.records import Record, Results
from outrider.worker.pipeline.wire.codec import Codec
from outrider.worker.pipeline.wire.hello import Group, StageFacts
from outrider.worker.pipeline.wire.limits import ResultLimits
from outrider.worker.pipeline.wire.mailbox import Mailbox
from outrider.worker.pipeline.wire.outgoing_stream import (
    COLLECT,
    RUN,
    OutgoingStream,
    StageAddress,
)

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0


class StageClient(Mailbox[Results]):
    """A group's leader: `connect`, then send and poll until it is closed."""

    def __init__(
        self,
        group: Group,
        loop: asyncio.AbstractEventLoop,
        vocabulary: int,
        notify: Callable[[], None] = lambda: None,
        peers: PeerSettings | None = None,
    ) -> None:
        """`loop` runs on another thread, on which `notify` is called when results have come or the
        group has ended. Results with tokens beyond `vocabulary` end the group. `peers`:
        certificates that the stages are known by."""
        super().__init__(loop, notify)
        self.group = group
        self._peers = peers
        self.facts: tuple[StageFacts, ...] = ()
        """Of all stages, once connected."""
        self._codec = Codec(group.hidden_format, 0)
        self._limits = ResultLimits(0, vocabulary)
        self._ending = asyncio.Event()
        self._records: OutgoingStream | None = None
        self._up: Future[tuple[StageFacts, ...]] = Future()
        self._serving: Future[None] | None = None

    def connect(self, first: str, last: str) -> tuple[StageFacts, ...]:
        """Begin the group at the addresses of its first and last stage; return all stages' facts.

        Waits for all stages. Raises `StageRefused` if they cannot work together, `StageLost` if one
        cannot be had now; the group has ended then.
        """
        return self.begin(first, last).result()

    def begin(self, first: str, last: str) -> Future[tuple[StageFacts, ...]]:
        """Begin the group as `connect` does, without waiting: the result is what that returns or
        raises."""
        serving = self._serve(first, last)
        self._serving = asyncio.run_coroutine_threadsafe(serving, self._loop)
        self._serving.add_done_callback(_log_failure)
        return self._up

    @property
    def sent_bytes(self) -> int:
        return 0 if self._records is None else self._records.sent_bytes

    def send(self, message: Record) -> None:
        """Send a record after all that was sent before; drop it if the group has ended."""
        if self._records is not None and self.closed is None:
            self.on_loop(self._records.send, self._codec.encode(message))

    @property
    def ended(self) -> bool:
        """True if no stream is open."""
        return self._serving is None or self._serving.done()

    def close(self, reason: str = "the leader ends the group") -> None:
        """End the group, and wait a moment for the end of its streams; on no thread of the loop."""
        self.end(reason)
        if self._serving is not None:
            wait((self._serving,), CLOSE_SECONDS)

    async def _serve(self, first: str, last: str) -> None:
        """Open the streams, then carry them until one of them ends or `close`."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                await self._open(first, last, stack)
            except BaseException as error:  # grpcio raises CancelledError too, for its own calls
                known = _known(error)
                self.end(str(known))
                self._up.set_exception(known)
                return
            await self._ending.wait()

    async def _open(self, first: str, last: str, stack: contextlib.AsyncExitStack) -> None:
        to = StageAddress(first, self._peers)
        records = await OutgoingStream.open(to, RUN, self.group, 0, 0)
        stack.push_async_callback(records.end)
        self._start(records.carry_group(self.group, self._refuse), stack)  # it lives, from now on
        facts = records.facts
        behind = facts[-1]
        results = await OutgoingStream.open(
            to._replace(address=last), COLLECT, self.group, behind.stage, behind.layers.first
        )
        stack.push_async_callback(results.end)
        self._records = records
        self._limits = ResultLimits(min(f.rows for f in facts), self._limits.vocabulary)
        self._start(results.carry_group(self.group, self.put), stack)
        if self.closed is not None:
            raise StageLost(self.closed)
        self.facts = facts
        self._up.set_result(facts)

    def _start(self, carry: Coroutine[Any, Any, None], stack: contextlib.AsyncExitStack) -> None:
        task = asyncio.create_task(self._carry(carry))
        stack.callback(task.cancel)

    async def _carry(self, carry: Coroutine[Any, Any, None]) -> None:
        try:
            await carry
        except StageLost as error:
            self.end(str(error))
        except Exception as error:
            self.end(str(_known(error)))

    def decode(self, payload: bytes) -> Results | None:
        """Parse and check a payload; raises `ProtocolViolation`."""
        message = self._codec.decode(payload)
        if message is not None and not isinstance(message, Results):
            raise ProtocolViolation("records are for stages")
        if message is None:
            return None
        self._limits.check(message)
        return dataclasses.replace(message, arrived=time.monotonic())

    def _refuse(self, payload: bytes) -> None:
        if payload:
            self.end(f"a stage sent {len(payload)} bytes where no results come")

    def end_streams(self, reason: str) -> None:
        """End the streams soon."""
        self.on_loop(self._ending.set)


def _known(error: BaseException) -> StageLost | StageRefused:
    """Return an error that callers of `begin` know; any other is logged and becomes `StageLost`."""
    if isinstance(error, StageLost | StageRefused):
        return error
    logger.error("a stream of the leader failed", exc_info=error)
    return StageLost(f"the leader failed: {type(error).__name__}: {error}")


def _log_failure(serving: Future[None]) -> None:
    """Log why streams did not end in order; the group has ended all the same."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        logger.error("streams of the leader did not end in order", exc_info=error)
