"""How an engine hears and speaks: to its server process, and to its peers over gRPC.

The gRPC streams live on a thread of the engine's process, so that growth and commits cross no
process but the two that need them (docs/decisions/0004). What messages mean is not known here.
"""

import asyncio
import contextlib
import select
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from outrider.worker.engine.inbox import Inbox
from outrider.worker.engine.socket_channel import Channel, ChannelClosed
from outrider.worker.link.client import DraftLinks
from outrider.worker.messages import LinkStates, SetDrafts, ToPeer

MAX_CLOSE_SECONDS = 1.0


class Closed:
    """In a mailbox: there will be no more messages."""


class LoopThread:
    """An asyncio loop on a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Runs a function on the loop, soon."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def finish(self, last: Coroutine[Any, Any, None]) -> None:
        """Runs `last` to its end, not for ever, then ends loop and thread."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(last, self.loop).result(MAX_CLOSE_SECONDS)
        self.call(self.loop.stop)
        self._thread.join(MAX_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


class TargetTransport:
    """A target's engine: its server over a socket pair, its drafts over streams of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._mailbox = Inbox()
        self._links: DraftLinks | None = None
        self._thread = LoopThread("links")
        self._readable = select.poll()
        for end in (channel, self._mailbox):
            self._readable.register(end, select.POLLIN)

    def drain(self) -> list[Any]:
        """Messages of the server and of drafts."""
        messages = []
        for message in self._channel.drain():
            if isinstance(message, SetDrafts):
                self._set_drafts(message)
            else:
                messages.append(message)
        for message in self._mailbox.drain():
            if isinstance(message, LinkStates):
                self._channel.send(message)
            else:
                messages.append(message)
        return messages

    def wait(self, seconds: float | None) -> None:
        """Sleeps until the server or a draft has something."""
        self._readable.poll(milliseconds(seconds))

    def send(self, *messages: Any) -> None:
        """To drafts last: that wakes the thread which then takes the interpreter lock."""
        to_server = [m for m in messages if not isinstance(m, ToPeer)]
        if to_server:
            self._channel.send(*to_server)
        to_drafts = [m for m in messages if isinstance(m, ToPeer)]
        if to_drafts and self._links is not None:
            self._thread.call(self._links.send, to_drafts)

    def close(self) -> None:
        """Ends every stream, and the thread."""
        self._thread.finish(self._links.close() if self._links else asyncio.sleep(0))
        self._mailbox.close()

    def _set_drafts(self, message: SetDrafts) -> None:
        if self._links is None:
            self._links = DraftLinks(message.identity, self._mailbox.put)
        self._thread.call(self._links.set_addresses, message.addresses)


class ThreadTransport:
    """The engine of a process that serves gRPC itself."""

    def __init__(self, deliver: Callable[[Sequence[Any]], None]) -> None:
        """`deliver` takes the engine's messages, on the engine's thread."""
        self.inbox = Inbox()
        self._deliver = deliver
        self._readable = select.poll()
        self._readable.register(self.inbox, select.POLLIN)

    def drain(self) -> list[Any]:
        """Messages of the server and of targets."""
        messages = self.inbox.drain()
        if any(isinstance(m, Closed) for m in messages):
            raise ChannelClosed
        return messages

    def wait(self, seconds: float | None) -> None:
        """Sleeps until there is something."""
        self._readable.poll(milliseconds(seconds))

    def send(self, *messages: Any) -> None:
        """Hands messages to the serving thread."""
        self._deliver(messages)


def milliseconds(seconds: float | None) -> float | None:
    """What `poll` wants."""
    return None if seconds is None else max(0.0, seconds * 1000.0)
