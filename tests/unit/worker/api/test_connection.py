"""Connections on which half a request has come, or a length that no body has."""

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from outrider.worker.api.http import errors
from outrider.worker.api.http.connection import (
    LEAST_CHUNK,
    LINGER_SECONDS,
    MANY_CHUNKS,
    LimitedConnection,
    OpenConnections,
)
from outrider.worker.api.http.errors import ApiError
from outrider.worker.api.http.request_body import MAX_BODY_BYTES, read_body
from outrider.worker.api.http.server import listen

NEVER = 600.0
"""Seconds."""
HEAD = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"


@dataclass(slots=True)
class Timer:
    """What is done at a time, unless it was cancelled."""

    at: float
    run: Callable[[], object] | None

    def cancel(self) -> None:
        self.run = None


class StillLoop:
    """An event loop for whose timers time passes only when a test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._now = loop, 0.0
        self._timers: list[Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, run: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(self._now + seconds, functools.partial(run, *args))
        self._timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        self._now += seconds
        for timer in sorted(self._timers, key=lambda one: one.at):
            if timer.at <= self._now and timer.run is not None:
                timer.run()
                timer.cancel()


class CountingConnection(LimitedConnection):
    """A connection that knows how many bytes have come."""

    count = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.count += len(data)


async def echo(request: Request) -> Response:
    return PlainTextResponse(await read_body(request, NEVER, lambda size: None))


async def deaf(request: Request) -> Response:
    """Answers without a look at the body."""
    return PlainTextResponse("deaf")


class Peer:
    """A client that writes bytes, and lets time pass for the server."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        loop: StillLoop,
        connections: list[CountingConnection],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._loop, self.connections = loop, connections
        self._sent = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        host, port = self._writer.get_extra_info("peername")
        return host, port

    def send(self, data: bytes) -> None:
        self._writer.write(data)
        self._sent += len(data)

    async def wait(self, seconds: float) -> None:
        """Let time pass after the server has got all that was sent."""
        while sum(one.count for one in self.connections) < self._sent or not self.connections:
            await asyncio.sleep(0)
        self._loop.pass_time(seconds)

    async def end(self) -> None:
        """Wait until the server has no connection."""
        while any(one in one.connections for one in self.connections):
            await asyncio.sleep(0)

    def send_away(self) -> None:
        for connection in self.connections:
            connection.send_away()

    async def rest(self) -> bytes:
        """Return all that comes until the server closes."""
        return await self._reader.read()

    async def answer(self) -> bytes:
        """Return one answer with a length."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:-2])
        return head + await self._reader.readexactly(int(fields["content-length"]))


@contextlib.asynccontextmanager
async def served(most: int = 8) -> AsyncIterator[Peer]:
    routes = [Route("/echo", echo, methods=["POST"]), Route("/deaf", deaf, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers={ApiError: errors.handle_refusal})
    config = uvicorn.Config(app, http=CountingConnection, log_config=None, lifespan="off")
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    still, connections = StillLoop(loop), list[CountingConnection]()
    limits = OpenConnections(most)

    def connected() -> CountingConnection:
        loop = cast(asyncio.AbstractEventLoop, still)
        made = CountingConnection(config, state, {}, loop, limits=limits)
        connections.append(made)
        return made

    server = await loop.create_server(connected, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield Peer(reader, writer, still, connections)
        writer.close()
        await writer.wait_closed()


def run(scene: Callable[[Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), served() as peer:
            await scene(peer)

    asyncio.run(main())


def refusal(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "begun",
    [
        HEAD + b"content-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"no HTTP\r\n\r\n",
    ],
)
def test_a_client_that_still_sends_is_not_reset(begun: bytes) -> None:
    async def scene(peer: Peer) -> None:
        peer.send(begun)
        assert await peer.answer()
        peer.send(b"half")
        await peer.wait(0.0)
        peer.send(b"more")
        await peer.wait(0.0)
        assert await peer.rest() == b""
        await peer.wait(LINGER_SECONDS)
        await peer.end()

    run(scene)


@pytest.mark.parametrize("begun", [b"PO", HEAD, HEAD + b"x-a: b"])
def test_a_head_that_does_not_end_is_refused_in_time(begun: bytes) -> None:
    async def scene(peer: Peer) -> None:
        peer.send(begun)
        await peer.wait(LimitedConnection.head_seconds)
        status, error = refusal(await peer.rest())
        assert status == 408
        assert error["type"] == "timeout"
        assert "head" in error["message"]

    run(scene)


def test_a_connection_on_which_nothing_comes_is_closed_without_a_word() -> None:
    async def scene(peer: Peer) -> None:
        await peer.wait(LimitedConnection.head_seconds)
        assert await peer.rest() == b""

    run(scene)


def test_half_a_head_after_an_answer_is_refused_in_time() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 2\r\n\r\nhi")
        assert (await peer.answer()).endswith(b"hi")
        peer.send(HEAD)
        await peer.wait(LimitedConnection.head_seconds)
        assert refusal(await peer.rest())[0] == 408

    run(scene)


@pytest.mark.parametrize(
    "begun", [b"content-length: 9\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n9\r\nhalf"]
)
def test_a_body_of_which_nothing_more_comes_is_refused_in_time(begun: bytes) -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + begun)
        await peer.wait(LimitedConnection.body_seconds)
        status, error = refusal(await peer.rest())
        assert status == 408
        assert "body" in error["message"]

    run(scene)


def test_a_body_that_nobody_reads_keeps_no_connection_open() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD.replace(b"echo", b"deaf") + b"content-length: 9\r\n\r\n")
        assert (await peer.answer()).endswith(b"deaf")
        await peer.wait(LimitedConnection.head_seconds)
        assert await peer.rest() == b""

    run(scene)


def test_a_body_that_comes_byte_by_byte_is_read() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 5\r\n\r\n")
        for byte in b"hello":
            await peer.wait(0.9 * LimitedConnection.body_seconds)
            peer.send(bytes([byte]))
        assert (await peer.answer()).endswith(b"hello")

    run(scene)


@pytest.mark.parametrize(
    "length",
    [*map(str, (MAX_BODY_BYTES + 1, 2**63, 2**64 - 1, 2**64, 10**30)), "9" * 19, "9" * 20],
)
def test_a_length_that_no_body_has_is_refused_at_once(length: str) -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + f"content-length: {length}\r\n\r\n".encode())
        status, error = refusal(await peer.rest())
        assert status in (400, 413)
        assert error["type"] == "invalid_request_error"

    run(scene)


@pytest.mark.parametrize("size", [b"7fffffffffffffff", b"ffffffffffffffff", b"f" * 20, b"f" * 21])
def test_a_chunk_that_no_body_has_is_refused_at_once(size: bytes) -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + size + b"\r\n")
        assert refusal(await peer.rest())[0] in (400, 413)

    run(scene)


def test_a_connection_that_is_sent_away_closes_after_its_answer() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 5\r\n\r\nhal")
        await peer.wait(0.0)
        peer.send_away()
        peer.send(b"ve")
        assert (await peer.rest()).endswith(b"halve")

    run(scene)


def test_the_rest_of_a_body_is_refused_by_a_server_that_stops() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 5\r\n\r\nhal")
        await peer.wait(0.0)
        for connection in peer.connections:
            connection.refuse_rest()
        status, error = refusal(await peer.rest())
        assert (status, error["code"]) == (503, "stopping")

    run(scene)


def test_an_idle_connection_that_is_sent_away_closes_and_half_a_head_is_let_come() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 2\r\n\r\nhi")
        assert (await peer.answer()).endswith(b"hi")
        peer.send(HEAD)
        await peer.wait(0.0)
        peer.send_away()
        peer.send(b"content-length: 2\r\n\r\nho")
        assert (await peer.answer()).endswith(b"ho")
        peer.send_away()
        assert await peer.rest() == b""

    run(scene)


def test_what_is_not_http_is_refused_as_every_other_request() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(b"\x16\x03\x01 hello\r\n\r\n")
        status, error = refusal(await peer.rest())
        assert (status, error["type"]) == (400, "invalid_request_error")

    run(scene)


def test_a_body_may_begin_with_a_byte_order_mark() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-length: 5\r\n\r\n\xef\xbb\xbfhi")
        assert (await peer.answer()).endswith(b"\r\n\r\nhi")

    run(scene)


def test_an_encoded_body_is_refused_by_its_encoding() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(HEAD + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi")
        status, error = refusal(await peer.answer())
        assert status == 415
        assert "gzip" in error["message"]

    run(scene)


def chunked(size: int, count: int) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (size, size * b"x")
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + count * chunk


def test_a_body_in_many_small_chunks_is_refused_and_no_more_of_it_is_read() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(chunked(LEAST_CHUNK - 1, 4 * MANY_CHUNKS))
        status, error = refusal(await peer.answer())
        assert status == 400
        assert "in chunks of less than 64 bytes" in error["message"]
        assert await peer.rest() == b""

    run(scene)


@pytest.mark.parametrize(("size", "count"), [(LEAST_CHUNK, 4 * MANY_CHUNKS), (1, MANY_CHUNKS)])
def test_larger_chunks_and_few_small_ones_are_read(size: int, count: int) -> None:
    async def scene(peer: Peer) -> None:
        for _ in range(2):  # they are counted anew for each request
            peer.send(chunked(size, count) + b"0\r\n\r\n")
            assert (await peer.answer()).endswith(size * count * b"x")

    run(scene)


def test_a_connection_ends_with_an_answer_before_the_end_of_its_body() -> None:
    async def scene(peer: Peer) -> None:
        peer.send(b"POST /deaf HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nhalf")
        assert b"connection" not in (await peer.answer()).lower()
        peer.send(b"POST /deaf HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf")
        answer = await peer.answer()
        assert answer.endswith(b"deaf")
        assert b"\r\nconnection: close\r\n" in answer.lower()  # no further request is sent here
        assert await peer.rest() == b""

    run(scene)


class Noted:
    """A connection that notes its end."""

    ended = False

    def __init__(self, unread: bool = False) -> None:
        self._unread = unread

    def has_unread(self) -> bool:
        return self._unread

    def descriptor(self) -> int:
        return -1

    def end(self) -> None:
        self.ended = True


def test_where_there_are_too_many_connections_the_one_that_waits_longest_goes() -> None:
    limits, all_ = OpenConnections(3), [Noted() for _ in range(6)]
    some = [cast(LimitedConnection, one) for one in all_]
    for one in some[:3]:
        limits.add(one)
    limits.request(some[0])
    limits.wait(some[0])  # its answer is sent: it waits for less long than others
    limits.request(some[1])
    limits.add(some[3])
    assert [one.ended for one in all_] == [False, False, True, False, False, False]
    limits.remove(some[2])
    limits.add(some[4])
    assert [one.ended for one in all_] == [True, False, True, False, False, False]
    limits.add(some[5])  # before the end of the one before is known
    assert [one.ended for one in all_] == [True, False, True, True, False, False]


@pytest.mark.parametrize(
    ("unread", "ended"),
    [((True, False, False), 1), ((True, True, False), 2), ((True, True, True), 2)],
)
def test_a_connection_whose_bytes_are_not_read_yet_is_not_silent(
    unread: tuple[bool, ...], ended: int
) -> None:
    limits, all_ = OpenConnections(2), [Noted(one) for one in unread]
    for one in all_:
        limits.add(cast(LimitedConnection, one))
    assert [one.ended for one in all_] == [number == ended for number in range(3)]


@pytest.mark.parametrize("begun", [b"", b"G", HEAD, HEAD + b"content-length: 5\r\n\r\nhal"])
def test_one_too_many_connections_end_one_without_a_whole_request(begun: bytes) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), served(most=1) as silent:
            silent.send(begun)
            await silent.wait(0.0)
            host = silent.address
            reader, writer = await asyncio.open_connection(*host)
            told = await silent.rest()
            assert refusal(told)[0] == 503 if b"\r\n\r\n" in begun else told == b""
            writer.write(b"POST /deaf HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            assert (await reader.readuntil(b"deaf")).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


def test_what_is_written_to_a_connection_is_sent_at_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[bool] = loop.create_future()

        class Writes(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                end = transport.get_extra_info("socket")
                made.set_result(bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))

        listener = listen("127.0.0.1:0")
        async with asyncio.timeout(60), await loop.create_server(Writes, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            assert await made
            writer.close()

    asyncio.run(main())
