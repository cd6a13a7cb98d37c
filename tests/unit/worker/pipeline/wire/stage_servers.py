"""Stages of a pipeline that compute nothing, behind real gRPC servers on loopback.

Each passes its records on; the last one answers every segment with its rows' tokens.

with stage_servers(3) as stages:
    client = StageClient(group(3), shared_loop(), LIMITS.vocabulary)
    client.connect(stages[0].address, stages[-1].address)
"""

import asyncio
import contextlib
import functools
import queue
import threading
from collections.abc import Iterator
from dataclasses import replace

import grpc
import numpy as np

from outrider.worker.errors import StageLost
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.stage_loop import StageLinks
from outrider.worker.pipeline.wire.hello import Group, StageFacts, StageIdentity
from outrider.worker.pipeline.wire.limits import RecordLimits
from outrider.worker.pipeline.wire.stage_service import StageService
from tests.unit.worker.pipeline.wire.pipeline_records import HIDDEN, LIMITS

REVISION = "abc"
PATIENCE = 60_000
"""Milliseconds of silence: tests in which nobody is to be given up run on busy machines."""


def group(
    stages: int,
    number: int = 1,
    silence: int = PATIENCE,
    revision: str = REVISION,
    distributed: bool = False,
) -> Group:
    return Group(number, revision, stages, silence_millis=silence, distributed=distributed)


@functools.cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """A loop on a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class StageServer:
    """One stage: its server on a shared loop, its records on a thread."""

    def __init__(
        self, index: int, stages: int, next_address: str, distributed: bool = False
    ) -> None:
        facts = StageFacts(index, LayerRange(index, index + 1, stages), "fp32", 8, 16, 200)
        self.own = StageIdentity(REVISION, stages, facts, HIDDEN, LIMITS.vocabulary, distributed)
        self.received: list[Record] = []
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Reasons for which groups have ended here."""
        self.answers: int | None = None
        """Sampled after all rows; None: each row's own token."""
        self.address = ""
        self._next = next_address
        self._groups: queue.SimpleQueue[StageLinks | None] = queue.SimpleQueue()
        self._listens = threading.Event()
        self._stop = asyncio.Event()
        self._closed = False
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(), shared_loop())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._listens.wait()

    def send_to(self, address: str) -> None:
        """Sends the records of groups to come to another stage."""
        self._service._next_address = address

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        shared_loop().call_soon_threadsafe(self._stop.set)
        self._groups.put(None)
        self._serving.result()
        self._thread.join()

    async def _serve(self) -> None:
        server = grpc.aio.server()
        limits = RecordLimits(8, 16, 200, LIMITS.vocabulary, embeds=self.own.facts.stage == 0)
        service = self._service = StageService(self.own, limits, self._next, self._groups.put)
        server.add_generic_rpc_handlers((service.handler(),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._listens.set()
        await self._stop.wait()
        service.close()
        await server.stop(0)

    def _run(self) -> None:
        while (links := self._groups.get()) is not None:
            try:
                while True:
                    for record in links.receive(None):
                        self._handle(links, record)
            except StageLost as error:
                self.ended.put(str(error))

    def _handle(self, links: StageLinks, record: Record) -> None:
        self.received.append(record)
        if not self.own.is_last:
            if isinstance(record, Segment):
                record = record.with_hidden(np.ones((record.count, HIDDEN), np.float32))
            links.send(record)
        elif isinstance(record, Segment):
            results = echo(record)
            if self.answers is not None:
                results = replace(results, tokens=np.full_like(results.tokens, self.answers))
            links.send(results)


def echo(segment: Segment) -> Results:
    """Results with the segment's own tokens."""
    count = segment.count
    floats = np.zeros(count, np.float32)
    none = np.zeros((count, 0), np.float32)
    return Results(
        segment.number, segment.rows, segment.tokens, floats, none.astype(np.int32), none
    )


@contextlib.contextmanager
def stage_servers(count: int, distributed: bool = False) -> Iterator[list[StageServer]]:
    """Stages, in their order."""
    stages: list[StageServer] = []
    try:
        for index in reversed(range(count)):
            behind = stages[0].address if stages else ""
            stages.insert(0, StageServer(index, count, behind, distributed))
        yield stages
    finally:
        for stage in stages:
            stage.close()
