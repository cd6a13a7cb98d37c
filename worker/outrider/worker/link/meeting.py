"""Meeting of a target and a draft in a folder that both see, where memory is handed over.

A draft listens there at a socket of its own; its Hello offers a target the socket's name and a
token. A target that finds the socket hands over memory, and the connection stays as the bell of
their link. Leaves what the memory is used for to `shared_memory`.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken
from outrider.worker.link import memory_file

logger = logging.getLogger(__name__)

SOCKET_NAME = re.compile(r"draft-[0-9a-f]{16}\.sock")
NOT_YET = ".new"
"""Follows the name of a socket on which nobody listens yet."""
TOKEN_BYTES = 16
SECONDS = 2.0
"""Longest that either side waits for the other at the socket."""
MAX_CONNECTIONS = 64
"""Connections that are served at once."""
ACCEPT_RETRY_SECONDS = 0.1
TAKEN = b"taken"
ANSWER_BYTES = 512


@dataclass(frozen=True, slots=True)
class LinkMemory:
    """Memory that two processes share: an open file, and their connection."""

    descriptor: int
    bell: socket.socket

    def close(self) -> None:
        """Close both; what is mapped stays."""
        os.close(self.descriptor)
        self.bell.close()


@dataclass(slots=True)
class MeetingPlace:
    """A draft's socket, and the memory that has been handed over there."""

    name: str
    _folder: Path
    _listener: socket.socket
    _accepting: asyncio.Task[None] | None = None
    _offered: set[bytes] = field(default_factory=set)
    _taken: dict[bytes, LinkMemory] = field(default_factory=dict)
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Listen in `folder`, on the running loop; raise `LinkBroken`, saying why not."""
        _remove_stale(folder)
        name = f"draft-{secrets.token_hex(8)}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        try:
            with short_path(folder, name) as path:
                listener.bind(path + NOT_YET)
                listener.listen()
                os.chmod(path + NOT_YET, 0o666)  # another container has another user, and a token
                os.rename(path + NOT_YET, path)  # only now: what refuses a connection is removed
        except (OSError, LinkBroken) as error:
            listener.close()
            raise LinkBroken(f"no target can be met in {folder}: {reason(error)}") from None
        meeting = cls(name, folder, listener)
        meeting._accepting = asyncio.create_task(meeting._accept(), name="meeting of targets")
        return meeting

    def offer(self) -> pb.Meeting:
        """Return an offer for one target: the socket, and a token for one connection."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._offered.add(token)
        return pb.Meeting(socket=self.name, token=token)

    def take(self, offer: pb.Meeting) -> LinkMemory | None:
        """Return what was handed over on an offer, which ends; None: nothing."""
        self._offered.discard(offer.token)
        return self._taken.pop(offer.token, None)

    def close(self) -> None:
        """Leave, and remove the socket."""
        tasks = (self._accepting, *self._connections) if self._accepting else ()
        for task in tasks:
            task.cancel()
        self._listener.close()
        for memory in self._taken.values():
            memory.close()
        with contextlib.suppress(OSError):
            (self._folder / self.name).unlink()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("a connection of a target cannot be accepted: %s", reason(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if len(self._connections) >= MAX_CONNECTIONS:
                connection.close()
                continue
            receiving = asyncio.create_task(self._serve(connection))
            self._connections.add(receiving)
            receiving.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """Receive memory from a connection whose token was offered; close any other."""
        connection.setblocking(False)
        try:
            async with asyncio.timeout(SECONDS):
                await _readable(connection)
            self._receive_memory(connection)
        except (OSError, TimeoutError, LinkBroken) as error:
            logger.warning("a connection of a target is refused: %s", reason(error))
            with contextlib.suppress(OSError):
                connection.send(reason(error).encode()[:ANSWER_BYTES])
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _receive_memory(self, connection: socket.socket) -> None:
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        token, descriptors, _, _ = socket.recv_fds(connection, TOKEN_BYTES, 1, flags)
        try:
            if token not in self._offered or token in self._taken or not descriptors:
                raise LinkBroken("no such token was offered, or no memory came")
            memory_file.check(descriptors[0])
            connection.send(TAKEN)
        except (OSError, LinkBroken):
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._taken[token] = LinkMemory(descriptors[0], connection)


async def hand_over(folder: Path, offer: pb.Meeting) -> LinkMemory:
    """Make memory and hand it to the draft that sent `offer`; raise `LinkBroken`."""
    if not SOCKET_NAME.fullmatch(offer.socket):
        raise LinkBroken("the draft names no socket of its own")
    memory = _memory()
    try:
        async with asyncio.timeout(SECONDS):
            await _send(folder, offer, memory)
    except (OSError, TimeoutError, LinkBroken) as error:
        memory.close()
        raise LinkBroken(
            f"the draft cannot be met at {folder / offer.socket}: {reason(error)}"
        ) from None
    except asyncio.CancelledError:
        memory.close()
        raise
    return memory


def _memory() -> LinkMemory:
    """Make memory and a socket that is not connected yet; raise `LinkBroken`, saying why not."""
    descriptor = memory_file.create()
    try:
        bell = socket.socket(socket.AF_UNIX)
    except OSError as error:
        os.close(descriptor)
        raise LinkBroken(f"no socket can be had: {reason(error)}") from None
    bell.setblocking(False)
    return LinkMemory(descriptor, bell)


async def _send(folder: Path, offer: pb.Meeting, memory: LinkMemory) -> None:
    """Connect, hand over and wait for the answer."""
    loop = asyncio.get_running_loop()
    with short_path(folder, offer.socket) as path:
        await loop.sock_connect(memory.bell, path)
    socket.send_fds(memory.bell, [offer.token[:TOKEN_BYTES]], [memory.descriptor])
    answer = await loop.sock_recv(memory.bell, ANSWER_BYTES)
    if answer != TAKEN:
        raise LinkBroken(f"it took no memory: {answer.decode(errors='replace')}")


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of drafts that were killed: they refuse a connection."""
    with contextlib.suppress(OSError):  # a folder that cannot be used is named by who binds there
        for name in filter(SOCKET_NAME.fullmatch, os.listdir(folder)):
            if _is_stale(folder, name):
                (folder / name).unlink()
                logger.info("removed %s, the socket of a draft that is gone", folder / name)


def _is_stale(folder: Path, name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, short_path(folder, name) as path:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:  # full, or gone meanwhile
            return False
    return False


@contextlib.contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """Give a path of a socket in `folder` that is short enough, however long the folder's is."""
    if sys.platform != "linux":
        with tempfile.TemporaryDirectory(dir="/tmp") as near:
            os.symlink(folder.absolute(), f"{near}/d")
            yield f"{near}/d/{name}"
        return
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)


def reason(error: BaseException) -> str:
    """Return an error in words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or f"no answer within {SECONDS:.0f} s"


async def _readable(end: socket.socket) -> None:
    """Wait until something can be read."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(end, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(end)
