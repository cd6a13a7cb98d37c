"""A peer that never reads what it is sent: it loses its stream, and holds no memory."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np

from outrider.worker.link.client import DraftLinks
from outrider.worker.link.handshake import hello_to_target
from outrider.worker.link.rate_limit import UNREAD_BYTES
from outrider.worker.link.service import SERVICE, DrafterService, SendQueues
from outrider.worker.link.wire import Commit, Grow
from outrider.worker.messages import Identity, LinkDown, LinkStates, LinkUp, ToPeer
from outrider.worker.tree.growth import Growth
from tests.process.hostile import HostileTarget

SECONDS = 30.0
NODES = 4000
IDENTITY = Identity("revision", 1, 2048, 64, np.ones(1, np.uint64), sessions=2)
PARENTS, TOKENS = np.zeros(NODES, np.int64), np.ones(NODES, np.int32)
GROW = Grow(1, Growth(2, 1, PARENTS, TOKENS, np.zeros(NODES, np.float32)))
COMMIT = Commit(1, 2, np.full(NODES, 2**31 - 1, np.int32))
GROW_COUNT, COMMIT_COUNT = (UNREAD_BYTES // (size * NODES) for size in (16, 4))
"""Messages that are as large as what may be left unread, by the bytes of a node or token."""


class Engine:
    """What an engine is told of links."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self._news = asyncio.Event()

    def hear(self, message: object) -> None:
        self.told.append(message)
        self._news.set()

    async def until(self, kind: type) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := [m for m in self.told if isinstance(m, kind)]):
                await self.more()
        return found[0]

    async def more(self) -> None:
        self._news.clear()
        await self._news.wait()


@contextlib.asynccontextmanager
async def served(handler: grpc.GenericRpcHandler) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def sent_until_down(
    link: DraftLinks | SendQueues, message: ToPeer, engine: Engine, most: int
) -> int:
    """How many messages are taken until the link is down, `most` at the utmost."""
    count = 0
    while not any(isinstance(m, LinkDown) for m in engine.told):
        assert count < most, "the link takes more and more"
        link.send([message])
        count += 1
        await asyncio.sleep(0)
    return count


def test_a_target_that_never_reads_loses_its_stream() -> None:
    async def run() -> None:
        engine = Engine()
        queues = SendQueues()
        drafter = DrafterService(IDENTITY, engine.hear, queues)
        async with served(drafter.handler()) as address:
            hostile = await asyncio.to_thread(HostileTarget, address)
            up = await engine.until(LinkUp)
            count = await sent_until_down(queues, ToPeer(up.link, [GROW]), engine, 10 * GROW_COUNT)
            assert count > GROW_COUNT, "a slow target is waited for"
            refusal = await asyncio.to_thread(hostile.refusal)
            assert re.search("RESOURCE_EXHAUSTED(.|\n)*left unread", refusal)
            hostile.__exit__()

    asyncio.run(run())


def test_a_draft_that_never_reads_loses_its_link() -> None:
    async def pair(incoming: object, context: Any) -> AsyncIterator[bytes]:
        yield hello_to_target(IDENTITY)
        await asyncio.Event().wait()

    async def run() -> None:
        engine = Engine()
        method: Any = grpc.stream_stream_rpc_method_handler(pair)
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Pair": method})
        links = DraftLinks(IDENTITY, engine.hear)
        async with served(handler) as address:
            links.set_addresses([address])
            up = await engine.until(LinkUp)
            count = await sent_until_down(
                links, ToPeer(up.link, [COMMIT]), engine, 10 * COMMIT_COUNT
            )
            assert count > COMMIT_COUNT, "a slow draft is waited for"
            await asyncio.sleep(0)
            states = [m for m in engine.told if isinstance(m, LinkStates)]
            assert "left unread" in states[-1].links[0].detail
            await links.close()

    asyncio.run(run())
