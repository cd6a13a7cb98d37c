"""The draft's process of `bench.link`: its server and engine thread, without a model.

Answers every commit with growth of a few nodes; the commit's position says how many came at once.
Prints the port of its server, then, when its standard input ends, nanoseconds of the way of each
commit that came alone, as JSON.
"""

import asyncio
import json
import sys
import threading
import time
from pathlib import Path

import grpc
import numpy as np

import outrider.worker.link.shared_memory  # noqa: F401  # compiled before a link is timed
from outrider.contract.settings import LinkTransport
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.engine.transport import Closed, ThreadTransport
from outrider.worker.link import distributed
from outrider.worker.link.meeting import Meeting
from outrider.worker.link.service import OPTIONS, DrafterService, SendQueues
from outrider.worker.link.wire import Commit, Grow
from outrider.worker.messages import FromPeer, Identity, ToPeer
from outrider.worker.tree.growth import Growth

NODES = 8


def identity(link: LinkTransport, folder: Path) -> Identity:
    """Either side's, with room for many sessions."""
    hashes = np.ones(1, np.uint64)
    return Identity("bench", 1, 4096, 64, hashes, sessions=64, link=link, link_dir=str(folder))


def growth() -> Growth:
    """The nodes of a draft pass."""
    ids = np.arange(NODES, dtype=np.int64)
    tokens, logprobs = ids.astype(np.int32), np.full(NODES, -0.5, np.float32)
    return Growth(40, 1, ids, tokens, logprobs)


def answer(transport: ThreadTransport, seen: list[int]) -> None:
    """Answer commits, asleep in between; its session is the time at which one was sent."""
    nodes = growth()
    while True:
        try:
            messages = transport.drain()
        except ChannelClosed:
            return
        for message in messages:
            if isinstance(message, FromPeer):
                now = time.monotonic_ns()
                seen += [now - m.session for m in message.messages if m.position == 1]
                count = sum(isinstance(m, Commit) for m in message.messages)
                reply = [Grow(time.monotonic_ns(), nodes) for _ in range(count)]
                to_peer = ToPeer(message.link, reply)
                if not transport.direct.send(to_peer):
                    transport.send(to_peer)
        transport.wait(None)


async def serve(link: LinkTransport, folder: Path) -> None:
    """Serve one target until standard input ends."""
    loop, queues, seen = asyncio.get_running_loop(), SendQueues(), list[int]()
    transport = ThreadTransport(lambda out: loop.call_soon_threadsafe(queues.send, out))
    own = identity(link, folder)
    if own.distributed:
        distributed.require()
    meeting = Meeting.open(folder) if own.shares_memory else None
    server = grpc.aio.server(options=OPTIONS)
    drafter = DrafterService(own, transport.inbox.put, queues, meeting)
    server.add_generic_rpc_handlers((drafter.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    engine = threading.Thread(target=answer, args=(transport, seen))
    engine.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    transport.inbox.put(Closed())
    await asyncio.to_thread(engine.join)
    await server.stop(0)
    if meeting is not None:
        meeting.close()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(LinkTransport(sys.argv[1]), Path(sys.argv[2])))
