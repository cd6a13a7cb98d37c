"""A live link beside the loops that `bench.host_tree` times: gRPC on a thread of their process.

What it carries is as much as one busy pair's: growth for every pass of a draft, a commit for every
pass of a target. The loops' own messages go out on it too, and are answered elsewhere.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

import grpc

from bench.host_tree_peer import PAIR
from outrider.worker.engine.transport import LoopThread
from outrider.worker.link.payloads import for_draft, for_target, from_draft
from outrider.worker.link.wire import Grow

CLOSE_SECONDS = 0.2


class TimedLink(Protocol):
    """Where a loop's messages go."""

    def send(self, messages: Sequence[Any]) -> None:
        """Hand messages over."""


class NoLink:
    """No link: messages are dropped."""

    def send(self, messages: Sequence[Any]) -> None:
        """Drop messages."""


class LiveLink:
    """A link whose thread encodes and sends messages, as an engine's does."""

    def __init__(self, thread: LoopThread, outgoing: "asyncio.Queue[bytes]") -> None:
        self._thread = thread
        self._outgoing = outgoing

    def send(self, messages: Sequence[Any]) -> None:
        """Wake the thread, if there is anything to send."""
        if messages:
            self._thread.call(self._put, tuple(messages))

    def _put(self, messages: Sequence[Any]) -> None:
        for message in messages:
            grows = isinstance(message, Grow)
            for payload in [for_target([message])] if grows else for_draft([message]):
                self._outgoing.put_nowait(payload)


@contextlib.contextmanager
def live_link() -> Iterator[LiveLink]:
    """Stream to a peer in a process of its own, which sends growth at a draft's full rate."""
    command = [sys.executable, "-m", "bench.host_tree_peer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = f"127.0.0.1:{int(process.stdout.readline())}"
        thread = LoopThread("links")
        outgoing: asyncio.Queue[bytes] = asyncio.Queue()

        async def queued() -> AsyncIterator[bytes]:
            while True:
                yield await outgoing.get()

        async def listen() -> None:
            async with grpc.aio.insecure_channel(address) as channel:
                pair: Any = channel.stream_stream(PAIR)
                async for payload in pair(queued()):
                    from_draft(payload)

        task = asyncio.run_coroutine_threadsafe(listen(), thread.loop)
        try:
            yield LiveLink(thread, outgoing)
        finally:
            process.kill()
            task.cancel()
            thread.finish(asyncio.sleep(CLOSE_SECONDS))
