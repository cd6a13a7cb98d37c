"""The process beside the loop that `bench.host_tree` times: a draft without a model.

Serves `Drafter.Pair` and grows real `DraftTree`s as fast as it can; prints its port first.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np

from outrider.worker.link.codec import decode_from_target, encode_for_target
from outrider.worker.link.service import SERVICE
from outrider.worker.link.wire import Commit, Grow, Open
from outrider.worker.tree.draft import DraftTree

VOCABULARY = 49_152
DEPTH, WIDTH, FAN, CHILDREN = 12, 8, 8, 4
SHARES = np.log(np.array([0.6, 0.2, 0.1, 0.05], np.float32))
"""Log-probabilities of a leaf's children."""
PAIR = f"/{SERVICE}/Pair"


class TargetSessions:
    """One stream's trees."""

    def __init__(self) -> None:
        self._trees: dict[int, DraftTree] = {}
        self._ahead: dict[int, int] = {}
        self._rng = np.random.default_rng(1)
        self.heard = asyncio.Event()

    def receive(self, payload: bytes) -> None:
        """Apply one message of the target."""
        match decode_from_target(payload):
            case Open(session=session, tokens=tokens, limits=limits):
                self._trees[session] = DraftTree(len(tokens), int(tokens[-1]))
                self._ahead[session] = limits.nodes_ahead
            case Commit(session=session, position=position, tokens=tokens):
                self._trees[session].commit(position, tokens)
        self.heard.set()

    def grow(self) -> list[bytes]:
        """One pass over every session that may grow."""
        return [payload for session in self._trees if (payload := self._pass(session)) is not None]

    def _pass(self, session: int) -> bytes | None:
        tree, ahead = self._trees[session], self._ahead[session]
        if len(tree) >= ahead:
            return None
        tree.mark_prefilled(len(tree.pending))
        leaves = tree.leaves(WIDTH, DEPTH)
        shape = (len(leaves), CHILDREN)
        tokens = self._rng.integers(VOCABULARY, size=shape, dtype=np.int32)
        tree.mark_expanded(leaves, tree.rows(leaves).slots)
        tree.offer(leaves, tokens, np.broadcast_to(SHARES, shape).copy())
        growth = tree.send(ahead, FAN)
        return None if growth is None else encode_for_target([Grow(session, growth)])


async def _pair(
    incoming: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[Any, Any]"
) -> AsyncIterator[bytes]:
    sessions = TargetSessions()

    async def listen() -> None:
        async for payload in incoming:
            sessions.receive(payload)

    listener = asyncio.create_task(listen())
    try:
        while True:
            grown = sessions.grow()
            for payload in grown:
                yield payload
            if not grown:
                sessions.heard.clear()
                await sessions.heard.wait()
    finally:
        listener.cancel()


async def serve_draft() -> None:
    """Serve until killed; prints its port first."""
    server = grpc.aio.server()
    method: Any = grpc.stream_stream_rpc_method_handler(_pair)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Pair": method}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve_draft())
