"""A draft of `bench.swiftspec`, in a process of its own with the product's engine and server.

It listens at two ports: targets that come to the first one share memory with it, those that come to
the other use gRPC, which can be delayed on its way. Answers one JSON object a line: what its engine
ran, sent and counted. Ends with its input.
"""

import asyncio
import contextlib
import itertools
import json
import queue
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

import outrider.worker.link.shared_memory  # noqa: F401  # compiled before a link is up
from bench.swiftspec.answer import LOCK_STEP, NO_REUSE
from bench.swiftspec.draft_sides import MirroredDraft, RecomputingDraft
from bench.swiftspec.lock_step_draft import LockStepDraft, Replies
from bench.swiftspec.process import (
    Traffic,
    finish,
    identity_of,
    on_thread,
    parse,
    read,
    say,
    spans_between,
)
from outrider.contract.settings import WorkerSettings
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.spans import draft_spans
from outrider.worker.engine.loop import Engine
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.transport import Closed, ThreadTransport
from outrider.worker.host.process import keep_to
from outrider.worker.launch import build_draft
from outrider.worker.launch.prepare import Models, prepare_models
from outrider.worker.link.meeting import MeetingPlace
from outrider.worker.link.payloads import for_target
from outrider.worker.link.service import OPTIONS, DrafterService, SendQueues
from outrider.worker.link.wire import FromDraft
from outrider.worker.messages import AskTimeline, DirectLinkLost, Identity, Timeline, ToPeer
from outrider.worker.parallel.placement import leaders_processors


@dataclass(frozen=True, slots=True)
class Built:
    """An engine, and what counts beside it."""

    engine: Engine[Any, Any]
    draft: MirroredDraft
    traffic: Traffic


def build(side: str, settings: WorkerSettings, models: Models, transport: ThreadTransport) -> Built:
    """Build the engine of one side."""
    loaded = build_draft.load_draft(settings, settings.model.dtype, models.own)
    runner = build_draft.draft_runner(loaded, models.vocabulary)
    build_draft.warm_up(settings, loaded, runner, models.vocabulary)
    loaded.limit_passes()
    traffic, outbox = Traffic(for_target), list[Any]()

    def send(link: int, messages: Sequence[FromDraft]) -> None:
        traffic.add(messages)
        to_peer = ToPeer(link, messages)
        if not transport.direct.send(to_peer):
            outbox.append(to_peer)

    direct = transport.direct.__contains__
    replies = Replies(send, is_direct=direct)
    send_buffer = replies if side == LOCK_STEP else SendBuffer(send, is_direct=direct)
    inner = build_draft.draft_scheduler(settings, loaded, send_buffer, outbox)
    draft: MirroredDraft
    if side == LOCK_STEP:
        draft = LockStepDraft(inner, replies)
    else:
        draft = RecomputingDraft(inner) if side == NO_REUSE else MirroredDraft(inner)
    return Built(Engine(draft, runner, transport, PassTimeline(draft_spans)), draft, traffic)


class DraftServer:
    """The draft's server: its links, and what the benchmark asks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queues = SendQueues()
        self._servers: list[grpc.aio.Server] = []
        self._timelines: asyncio.Queue[Timeline] = asyncio.Queue()
        self.transport = ThreadTransport(self._from_engine)

    async def listen(self, identity: Identity, meeting: MeetingPlace) -> list[int]:
        """Open both ports; their links are numbered together."""
        numbers = itertools.count(1)
        ports = []
        for place in (meeting, None):
            server = grpc.aio.server(options=OPTIONS)
            drafter = DrafterService(
                identity, self.transport.inbox.put, self._queues, place, _numbers=numbers
            )
            server.add_generic_rpc_handlers((drafter.handler(),))
            ports.append(server.add_insecure_port("127.0.0.1:0"))
            await server.start()
            self._servers.append(server)
        return ports

    async def passes(self, began: float, ended: float) -> list[list[Any]]:
        """Return the engine's passes in a time."""
        self.transport.inbox.put(AskTimeline())
        return spans_between(await self._timelines.get(), began, ended)

    async def close(self) -> None:
        """End the links, and the engine."""
        for server in self._servers:
            await server.stop(0)
        self.transport.inbox.put(Closed())

    def _from_engine(self, messages: Sequence[Any]) -> None:
        self._loop.call_soon_threadsafe(self._take, messages)

    def _take(self, messages: Sequence[Any]) -> None:
        """Take the engine's messages: those for targets, and timelines."""
        self._queues.send([m for m in messages if isinstance(m, ToPeer | DirectLinkLost)])
        for message in messages:
            if isinstance(message, Timeline):
                self._timelines.put_nowait(message)


async def serve() -> None:
    """Load, say where, then answer until the input ends."""
    options = parse(__doc__)
    settings = read(options.settings)
    keep_to(settings.other_processors)
    server = DraftServer()
    models = prepare_models(settings)
    built: queue.SimpleQueue[Built] = queue.SimpleQueue()

    def run() -> None:
        keep_to(leaders_processors(settings))
        one = build(options.side, settings, models, server.transport)
        built.put(one)
        one.engine.run()

    on_thread(run)
    one = await asyncio.to_thread(built.get)
    with contextlib.closing(MeetingPlace.open(options.links)) as meeting:
        near, far = await server.listen(identity_of(settings, models, options.links), meeting)
        say(near=near, far=far)
        while line := await asyncio.to_thread(sys.stdin.readline):
            spans = await server.passes(**json.loads(line))
            say(spans=spans, **one.draft.take(), **one.traffic.take())
        await server.close()


if __name__ == "__main__":
    asyncio.run(serve())
    finish()
