"""What runs beside the loop that `bench.host_tree` times: a draft without a model, and a relay.

The draft serves `Drafter.Pair` and grows real `DraftTree`s as fast as it can; the relay is the
server process of a worker, reduced to carrying bytes between the stream and the engine's socket.
"""

import argparse
import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np

from outrider.worker.channel import AsyncChannel, ChannelClosed
from outrider.worker.draft_tree import DraftTree
from outrider.worker.drafter_service import SERVICE
from outrider.worker.messages import FromPeer
from outrider.worker.wire import Commit, Grow, Open, decode_from_target, encode_for_target

VOCABULARY = 49_152
DEPTH, WIDTH, FAN, CHILDREN = 12, 8, 8, 4
SHARES = np.log(np.array([0.6, 0.2, 0.1, 0.05], np.float32))
"""Log-probabilities of a leaf's children."""
PAIR = f"/{SERVICE}/Pair"


class Sessions:
    """One stream's trees."""

    def __init__(self) -> None:
        self._trees: dict[int, DraftTree] = {}
        self._ahead: dict[int, int] = {}
        self._rng = np.random.default_rng(1)
        self.heard = asyncio.Event()

    def receive(self, payload: bytes) -> None:
        """Applies one message of the target."""
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
        tree.prefilled(len(tree.pending))
        leaves = tree.leaves(WIDTH, DEPTH)
        shape = (len(leaves), CHILDREN)
        tokens = self._rng.integers(VOCABULARY, size=shape, dtype=np.int32)
        tree.expanded(leaves, tree.rows(leaves).slots)
        tree.offer(leaves, tokens, np.broadcast_to(SHARES, shape).copy())
        new = tree.send(ahead, FAN)
        if new is None:
            return None
        return encode_for_target(
            Grow(session, new.root_position, new.first_id, new.parents, new.tokens, new.logprobs)
        )


async def _pair(
    incoming: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[Any, Any]"
) -> AsyncIterator[bytes]:
    sessions = Sessions()

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
    """Serves until killed; prints its port first."""
    server = grpc.aio.server()
    method: Any = grpc.stream_stream_rpc_method_handler(_pair)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Pair": method}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def relay(address: str, end: socket.socket) -> None:
    """Carries bytes both ways until the engine's end of the socket closes."""
    engine = await AsyncChannel.open(end)
    async with grpc.aio.insecure_channel(address) as channel:
        pair: Any = channel.stream_stream(PAIR)
        async for payload in pair(_outgoing(engine)):
            engine.send(FromPeer(1, payload))


async def _outgoing(engine: AsyncChannel) -> AsyncIterator[bytes]:
    try:
        while True:
            yield (await engine.receive()).payload
    except ChannelClosed:
        return


def main() -> None:
    """Starts the one or the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["draft", "relay"])
    parser.add_argument("--address", help="relay: where the draft listens")
    parser.add_argument("--fd", type=int, help="relay: the socket to the engine")
    options = parser.parse_args()
    if options.role == "draft":
        asyncio.run(serve_draft())
    else:
        asyncio.run(relay(options.address, socket.socket(fileno=options.fd)))


if __name__ == "__main__":
    main()
