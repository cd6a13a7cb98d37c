"""A TCP proxy for tests: a link that is slow, or corrupt, that can be cut, and be partitioned.

with Proxy("127.0.0.1:50051", delay=0.005) as proxy:
    connect_to(proxy.address)
    proxy.cut()
"""

import asyncio
import collections
import contextlib
import random
import threading
from typing import Self

READ_BYTES = 1 << 16


class Proxy:
    """Forwards bytes both ways, each `delay` seconds after they came, in a thread of its own.

    The delay may be changed at any time; bytes stay in their order.
    """

    def __init__(self, address: str, delay: float = 0.0) -> None:
        self.address = ""
        """Where it listens, once it runs."""
        self.connections = 0
        """Taken so far."""
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self.delay = delay
        self.corrupt = 0.0
        """Share of pieces in which one bit is turned; may be changed at any time."""
        self._random = random.Random(0)
        self._partitioned = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._carried: collections.Counter[asyncio.StreamWriter] = collections.Counter()
        """Pieces that have come in and not gone out."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def empty(self) -> bool:
        """Whether all that has come in has gone out."""
        return not any(self._carried.copy().values())

    def cut(self) -> None:
        """Resets every connection; new ones are taken."""
        self._loop.call_soon_threadsafe(self._abort)

    def partition(self) -> None:
        """Reset every connection, and each new one until `heal`."""
        self._partitioned = True
        self.cut()

    def heal(self) -> None:
        """Take connections again."""
        self._partitioned = False

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        self._server.close()
        self._abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._partitioned:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        with contextlib.suppress(asyncio.CancelledError):  # asyncio's streams log it as an error
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, until either end is gone."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        forwarding = asyncio.create_task(self._forward(late, writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                if forwarding.done():
                    return
                late.put_nowait((self._loop.time() + self.delay, self._passed(data)))
                self._carried[writer] += 1
        late.put_nowait((self._loop.time() + self.delay, b""))
        await forwarding

    def _passed(self, data: bytes) -> bytes:
        """A piece as it is passed on."""
        if self._random.random() >= self.corrupt:
            return data
        turned = bytearray(data)
        turned[self._random.randrange(len(turned))] ^= 1 << self._random.randrange(8)
        return bytes(turned)

    async def _forward(
        self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await late.get()
                await asyncio.sleep(due - self._loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                self._carried[writer] -= 1
        del self._carried[writer]
        self._writers.discard(writer)
        writer.transport.abort()
