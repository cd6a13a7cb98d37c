"""A worker that is started, but not told yet how to run: it measures its models, then serves.

Leaves what is measured, and how it is to run, to `placement`.
"""

import asyncio
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from outrider.cli.supervisor import Supervisor, cancel
from outrider.client.errors import ClientError, Unavailable, from_rpc
from outrider.operator.plan import WorkerPlan
from outrider.protos.v1 import control_pb2 as pb
from outrider.protos.v1.control_pb2_grpc import ControlStub

AGAIN_SECONDS = 0.05
END_SECONDS = 2.0
"""Time in which a worker that does not answer any more may turn out to have ended."""
DEADLINE = 60.0
"""Longest wait for one measurement, in seconds: many times what any takes."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """One such worker."""

    supervisor: Supervisor
    starting: "asyncio.Future[None]"
    """Its start, which ends when it serves."""

    @classmethod
    def start(cls, supervisor: Supervisor) -> "Undecided":
        """Begin to start a worker whose settings await an arrangement."""
        return cls(supervisor, asyncio.ensure_future(supervisor.start()))

    async def loaded(self) -> pb.MeasureResponse:
        """Wait until its models are loaded; raises `WorkerFailed` if it ends before that."""
        return await self._unless_ended(self._first_answer())

    async def measured(
        self,
        threads: int,
        passes: Sequence[tuple[bool, int]] = (),
        seconds: float = 0.0,
        **more: Any,
    ) -> pb.MeasureResponse:
        """Time rounds of passes, of the draft inside or its own, over so many rows.

        Raises `WorkerFailed` if it ends before that, and `ClientError`.
        """
        request = pb.MeasureRequest(
            threads=threads,
            passes=[pb.MeasuredPass(draft=draft, rows=rows) for draft, rows in passes],
            seconds=seconds,
            **more,
        )
        return await self._unless_ended(self._call("Measure", request, DEADLINE))

    async def arrange(self, worker: WorkerPlan) -> None:
        """Tell it how to run, in this life and in later ones, and wait until it serves."""
        self.supervisor.worker = worker
        request = pb.ArrangeRequest(settings=self.supervisor.settings.to_json())
        await self._unless_ended(self._call("Arrange", request, DEADLINE))
        await self.starting

    async def end(self, grace: float) -> None:
        """End it: it is not needed."""
        await cancel(self.starting)
        await self.supervisor.stop(grace)

    async def _first_answer(self) -> pb.MeasureResponse:
        while True:
            try:
                answer = await self._call("Measure", pb.MeasureRequest(threads=1), None)
                return typing.cast(pb.MeasureResponse, answer)
            except Unavailable:  # it does not listen yet
                await asyncio.sleep(AGAIN_SECONDS)

    async def _unless_ended(self, asking: Any) -> Any:
        """Return an answer; raise what ended the worker, if that comes first."""
        asked = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({asked, self.starting}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                self.starting.result()
            return await asked
        except ClientError:
            await asyncio.wait({self.starting}, timeout=END_SECONDS)
            if self.starting.done():
                self.starting.result()
            raise
        finally:
            await cancel(asked)

    async def _call(self, method: str, request: Any, seconds: float | None) -> Any:
        async with self.supervisor.control_channel() as channel:
            try:
                return await getattr(ControlStub(channel), method)(request, timeout=seconds)
            except grpc.RpcError as error:
                raise from_rpc(error) from None
