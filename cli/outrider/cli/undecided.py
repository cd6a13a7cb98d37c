"""A worker that is started, but not told yet how to run: it measures its models, then serves.

Leaves what is measured, and how it is to run, to `placement`.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from outrider.cli.workers.supervisor import Supervisor, cancel
from outrider.client.errors import from_rpc
from outrider.operator.plan import WorkerPlan
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal.control_pb2_grpc import ControlStub

AGAIN_SECONDS = 0.05
DEADLINE = 60.0
"""Longest wait for one measurement, in seconds: many times what any takes."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """One such worker; its methods raise `WorkerFailed` if it ends, and `ClientError`."""

    supervisor: Supervisor
    starting: "asyncio.Future[None]"
    """Its start, which ends when it serves."""

    @classmethod
    def start(cls, supervisor: Supervisor) -> "Undecided":
        """Begin to start a worker whose settings await an arrangement."""
        return cls(supervisor, asyncio.ensure_future(supervisor.start()))

    async def measured(self, wanted: pb.MeasureRequest) -> pb.MeasureResponse:
        """Return what it measures."""
        answer: pb.MeasureResponse = await self._ask("Measure", wanted, DEADLINE)
        return answer

    async def loaded(self) -> pb.MeasureResponse:
        """Wait until its models are loaded, and measure nothing."""
        answer: pb.MeasureResponse = await self._ask("Measure", pb.MeasureRequest(threads=1), None)
        return answer

    async def arrange(self, worker: WorkerPlan) -> None:
        """Tell it how to run, in this life and in later ones, and wait until it serves."""
        self.supervisor.worker = worker
        settings = self.supervisor.settings.to_json()
        await self._ask("Arrange", pb.ArrangeRequest(settings=settings), DEADLINE)
        await self.starting

    async def end(self, grace: float) -> None:
        """End it: it is not needed."""
        await cancel(self.starting)
        await self.supervisor.stop(grace)

    async def _ask(self, method: str, request: Any, seconds: float | None) -> Any:
        asking = asyncio.ensure_future(self._call(method, request, seconds))
        try:
            await asyncio.wait({asking, self.starting}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                self.starting.result()
            return await asking
        finally:
            await cancel(asking)

    async def _call(self, method: str, request: Any, seconds: float | None) -> Any:
        """Call until it listens, or, where it does not any more, until its end is known."""
        while True:
            async with self.supervisor.control_channel() as channel:
                try:
                    return await getattr(ControlStub(channel), method)(request, timeout=seconds)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise from_rpc(error) from None
            await asyncio.sleep(AGAIN_SECONDS)
