"""Transports of an engine: messages from and to its server, and its peers.

The gRPC streams live on a thread of the engine's process, so that growth and commits cross no
process but the two that need them (docs/decisions/0004). Direct links are read and written on the
engine's own thread (`direct_links`). Leaves what messages mean to the schedulers, sockets between
processes to `socket_channel`.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from outrider.worker.engine.direct_links import DirectLinks
from outrider.worker.engine.poller import Poller
from outrider.worker.engine.socket_channel import Channel, ChannelClosed
from outrider.worker.link.client import DraftLinks
from outrider.worker.messages import (
    DirectLinkLost,
    DirectLinkUp,
    FromPeer,
    LinkDown,
    LinkStates,
    LinkUp,
    SetDrafts,
    ToPeer,
)

MAX_CLOSE_SECONDS = 1.0
WAKE = b"!"
PIPE_BYTES = 1 << 16
LINK_NEWS = LinkUp | LinkDown | DirectLinkUp
"""What must not be overtaken by messages of a link."""


class Closed:
    """The last message of an inbox: no more will come."""


class Inbox:
    """A queue that any thread fills and the engine drains, without a system call.

    Its file descriptor becomes readable with each message, so that it wakes an engine that sleeps.
    """

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self.arrived = np.zeros(1, np.int64)
        """Not 0 while there may be a message; what compiled code looks at."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def put(self, message: Any) -> None:
        """Add a message and wake the engine."""
        self._messages.append(message)
        self.arrived[0] = 1
        with contextlib.suppress(BlockingIOError):  # so full that it is readable anyway
            os.write(self._writer, WAKE)

    def drain(self) -> list[Any]:
        """Take every message so far, oldest first."""
        self.arrived[0] = 0
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def drain_peers(self) -> list[Any]:
        """Take what peers have sent, up to the first news of a link; the rest stays, in order."""
        growth, others = list[Any](), list[Any]()
        while self._messages and not isinstance(self._messages[0], LINK_NEWS):
            message = self._messages.popleft()
            (growth if isinstance(message, FromPeer) else others).append(message)
        self._messages.extendleft(reversed(others))
        return growth

    def fall_asleep(self) -> bool:
        """Forget earlier wake-ups; False if there is a message already."""
        with contextlib.suppress(BlockingIOError):  # none
            os.read(self._reader, PIPE_BYTES)
        return not self._messages

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._reader

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class LoopThread:
    """An asyncio loop on a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run a function on the loop, soon."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def finish(self, last: Coroutine[Any, Any, None]) -> None:
        """Run `last` and end all other tasks, within `MAX_CLOSE_SECONDS`, then loop and thread."""
        ending = _last_of_all(last)
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(ending, self.loop).result(MAX_CLOSE_SECONDS)
        self.call(self.loop.stop)
        self._thread.join(MAX_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


async def _last_of_all(last: Coroutine[Any, Any, None]) -> None:
    """Run `last`, then cancel what is left of all else, as `asyncio.run` does."""
    await last
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class InboxTransport:
    """An inbox, direct links, and the sleep until there is a message in either."""

    def __init__(self, on_lost: Callable[[DirectLinkLost], None]) -> None:
        """`on_lost` has the stream of a direct link end that is lost."""
        self.inbox = Inbox()
        self.arrived = self.inbox.arrived
        """[1] not 0 while there may be a message, but for those of direct links."""
        self._readable = Poller()
        self._readable.register(self.inbox.fileno())
        self.direct = DirectLinks(self._readable, on_lost)

    def drain(self) -> list[Any]:
        """Take the messages of the server and of peers; raise `ChannelClosed` when there will be
        no more."""
        messages = self.inbox.drain()
        if any(isinstance(m, Closed) for m in messages):
            raise ChannelClosed
        return self.direct.for_scheduler(messages) + self.direct.receive()

    def drain_peers(self) -> list[Any]:
        """Take the messages of peers that have come, those by gRPC up to the first news of one."""
        return self.inbox.drain_peers() + self.direct.receive()

    def wait(self, seconds: float | None) -> None:
        """Sleep until there is a message in the inbox, or on a direct link."""
        asleep = self.direct.fall_asleep() and self.inbox.fall_asleep()
        self.direct.awake(self._readable.poll(seconds) if asleep else set[int]())


class TargetTransport(InboxTransport):
    """Transport of a target's engine process: its server by a socket pair, its drafts by gRPC or
    direct links.

    The thread of the gRPC streams also reads the server's socket, so that a step looks into an
    inbox in memory: reading a socket on which there is nothing takes 25 µs of a step whose caches a
    pass has emptied (Zen 5).
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(self._lose)
        self._channel = channel
        self._links: DraftLinks | None = None
        self._thread = LoopThread("links")
        self.loop = self._thread.loop
        """Of this process's streams, on a thread of its own."""
        self._reads = False

    def wake(self, message: Any) -> None:
        """Have `drain` return a message, and wake the engine; on any thread."""
        self.inbox.put(message)

    def drain(self) -> list[Any]:
        """Take the messages of the server and of drafts that are for the scheduler.

        The first call begins to read: no link comes up while the engine still loads.
        """
        if not self._reads:
            self._reads = True
            self._thread.call(self.loop.add_reader, self._channel.fileno(), self._read)
        messages = []
        for message in super().drain():
            if isinstance(message, LinkStates):
                self._channel.send(message)
            else:
                messages.append(message)
        return messages

    def send(self, *messages: Any) -> None:
        """Send to the server, then to drafts by gRPC: that wakes a thread which takes the
        interpreter lock. What is for direct links is written through `direct`."""
        to_server = [m for m in messages if not isinstance(m, ToPeer)]
        if to_server:
            self._channel.send(*to_server)
        to_drafts = [m for m in messages if isinstance(m, ToPeer)]
        if to_drafts and self._links is not None:
            self._thread.call(self._links.send, to_drafts)

    def close(self) -> None:
        """End every stream, and the thread."""
        self._thread.call(self.loop.remove_reader, self._channel.fileno())
        self._thread.finish(self._links.close() if self._links else asyncio.sleep(0))
        self.inbox.close()

    def _lose(self, lost: DirectLinkLost) -> None:
        if self._links is not None:
            self._thread.call(self._links.lose, lost.link, lost.error)

    def _read(self) -> None:
        """Take what the server has sent, on the thread: drafts to set, the rest for the engine."""
        try:
            for message in self._channel.drain():
                if isinstance(message, SetDrafts):
                    self._links = self._links or DraftLinks(message.identity, self.inbox.put)
                    self._links.set_addresses(message.addresses)
                else:
                    self.inbox.put(message)
        except ChannelClosed:
            self.loop.remove_reader(self._channel.fileno())
            self.inbox.put(Closed())


class ThreadTransport(InboxTransport):
    """Transport of an engine on a thread of its server's process."""

    def __init__(self, deliver: Callable[[Sequence[Any]], None]) -> None:
        """`deliver` takes the engine's messages, on the engine's thread."""
        super().__init__(lambda lost: deliver((lost,)))
        self._deliver = deliver

    def send(self, *messages: Any) -> None:
        """Hand messages to the server's thread, which has the gRPC streams as well."""
        self._deliver(messages)
