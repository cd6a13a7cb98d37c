"""Socket pair between a worker's server process and its engine process.

Frames are a length and a pickled dataclass of `outrider.worker.messages`; both ends are one
program. The engine's end never blocks on reading: it drains what has come between two steps.
"""

import asyncio
import pickle
import select
import socket
import struct
from typing import Any

LENGTH = struct.Struct("<I")
READ_BYTES = 1 << 18
BUFFER_BYTES = 1 << 22


class ChannelClosed(Exception):
    """The process at the other end is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Make two connected sockets with room for a burst of growth."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return ends


def frame(message: Any) -> bytes:
    """Encode one message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


class Channel:
    """The engine's end, which never blocks on reading."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self._unread = bytearray()

    def send(self, *messages: Any) -> None:
        """Write messages in one go; wait while the other end's buffer is full.

        Raises `ChannelClosed`.
        """
        data = memoryview(b"".join(frame(m) for m in messages))
        while data:
            try:
                data = data[self._end.send(data) :]
            except BlockingIOError:
                select.select([], [self._end], [])
            except (BrokenPipeError, ConnectionResetError):
                raise ChannelClosed from None

    def drain(self) -> list[Any]:
        """Take every message that has arrived; raise `ChannelClosed` at the end of the stream."""
        self._fill()
        messages = []
        start = 0
        while len(self._unread) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._unread, start)
            if len(self._unread) - start - LENGTH.size < size:
                break
            body = start + LENGTH.size
            start = body + size
            messages.append(pickle.loads(bytes(self._unread[body:start])))
        del self._unread[:start]
        return messages

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._end.fileno()

    def _fill(self) -> None:
        while True:
            try:
                data = self._end.recv(READ_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                raise ChannelClosed from None
            if not data:
                raise ChannelClosed
            self._unread += data
            if len(data) < READ_BYTES:
                return


class AsyncChannel:
    """The server's end, on its asyncio loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> "AsyncChannel":
        """Wrap one end of `pair()`."""
        return cls(*await asyncio.open_connection(sock=end, limit=BUFFER_BYTES))

    def send(self, message: Any) -> None:
        """Queue one message; `receive` notices a dead engine."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def receive(self) -> Any:
        """Wait for the next message; raise `ChannelClosed` at the end of the stream."""
        try:
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChannelClosed from None

    def close(self) -> None:
        """End the stream, at which the engine process stops."""
        self._writer.close()
