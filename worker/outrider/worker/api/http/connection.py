"""One HTTP connection: uvicorn's, with a time for heads and bodies, and refusals in OpenAI's shape.

uvicorn closes connections that are idle, but not those on which half a request has come; it reads
on where it has answered before the end of a body; it closes at once where a client still sends; and
it takes as many connections as there are. Leaves requests to the application.
"""

import asyncio
import contextlib
import itertools
import json
import select
import socket
from collections.abc import Callable
from typing import Any, ClassVar, cast

import h11
from starlette.datastructures import MutableHeaders
from starlette.types import Message
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from outrider.worker.api.http import errors
from outrider.worker.api.http.middleware import StartMiddleware
from outrider.worker.api.http.request_body import MAX_BODY_BYTES

INCOMPLETE = (h11.IDLE, h11.SEND_BODY)
"""States of a client that has not sent a whole request."""
MANY_CHUNKS = 256
"""Chunks of a body from which on their mean size counts."""
LEAST_CHUNK = 64
"""Bytes that they must have in the mean: each is an event in Python, on the loop of all streams."""
LOOKED_AT = 64
"""Connections of which one is chosen to go; those on which something has just come stay."""
LINGER_SECONDS = 2.0
"""Longest time for which the bytes of a client that has its answer are read and dropped."""


class _LingeringTransport:
    """A transport whose `close` ends a connection only after the client has, or after a time.

    A socket that is closed while bytes come resets the connection, and a client may lose the answer
    that it has not read yet (RFC 9112, section 9.6).
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_sending: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._is_sending = is_sending
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return true once `close` was called."""
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        """Send what is left and say that no more comes; read on while the client sends."""
        if self.is_closing() or not (self._is_sending() and self._transport.can_write_eof()):
            self._transport.close()
            return
        self._lingers = True
        self._transport.resume_reading()
        self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._transport.close)


class _CountingChunks(h11.Connection):
    """The state of a connection, which a body in many small chunks ends."""

    fault = ""
    """What is wrong with the request; empty: what h11 says."""
    _chunks = _bytes = 0

    def next_event(self) -> Any:
        """Return the next event; raise `h11.RemoteProtocolError` for what is refused."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > MANY_CHUNKS and self._bytes < LEAST_CHUNK * self._chunks:
                self.fault = (
                    f"the body comes in chunks of less than {LEAST_CHUNK} bytes; "
                    f"at most {MANY_CHUNKS} of them are read"
                )
                raise h11.RemoteProtocolError(self.fault)
        return event


class OpenConnections:
    """The connections of one server, of which there are at most `most`.

    Where there are too many, one without a whole request goes, the oldest first: bytes that are no
    request make it no younger.
    """

    def __init__(self, most: int) -> None:
        self._most, self._open = most, 0
        self._waiting: dict[LimitedConnection, None] = {}
        self._accepted: dict[int, socket.socket] = {}
        """By descriptor, those that are not open yet: under TLS, until the handshake has ended."""

    def accept(self, accepted: socket.socket) -> None:
        """Note one that was accepted; where many do not open, the oldest of them ends."""
        self._accepted.pop(accepted.fileno(), None)  # of one that has ended
        self._accepted[accepted.fileno()] = accepted
        if len(self._accepted) > max(1, self._most // 4):
            oldest = self._accepted.pop(next(iter(self._accepted)))
            with contextlib.suppress(OSError):  # it has ended
                oldest.shutdown(socket.SHUT_RDWR)

    def add(self, connection: "LimitedConnection") -> None:
        """Take one more; where there are too many, the one that waits longest goes."""
        self._open += 1
        self._accepted.pop(connection.descriptor(), None)
        self.wait(connection)
        if self._open > self._most:
            # after a standstill many are taken before any is read
            longest = itertools.islice(self._waiting, LOOKED_AT)
            oldest = next((one for one in longest if not one.has_unread()), connection)
            self.request(oldest)
            oldest.end()

    def remove(self, connection: "LimitedConnection") -> None:
        """Forget one that has ended."""
        self._open -= 1
        self.request(connection)

    def wait(self, connection: "LimitedConnection") -> None:
        """Note that it waits for a request from now on."""
        self._waiting[connection] = None

    def request(self, connection: "LimitedConnection") -> None:
        """Note that a whole request has come."""
        self._waiting.pop(connection, None)


class LimitedConnection(H11Protocol):
    """A connection that ends when half of a request has come and no more."""

    head_seconds: ClassVar[float] = 30.0
    """Time from the connection, or from the last answer, to the end of a request's head."""
    body_seconds: ClassVar[float] = 30.0
    """Longest time without a byte of a body."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, limits: OpenConnections, **more: Any) -> None:
        super().__init__(*given, **more)
        self._limits = limits
        self.conn = _CountingChunks(h11.SERVER)
        self.app = StartMiddleware(self.app, self._begin_response)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        lingering = _LingeringTransport(transport, self.loop, self._is_sending)
        super().connection_made(cast(asyncio.Transport, lingering))
        self._expire_in(self.head_seconds)
        self._limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expire_in(None)
        self._limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._chunk_bytes > MAX_BODY_BYTES:
            limit = f"at most {MAX_BODY_BYTES} bytes of a body are read"
            self._refuse(413, f"a chunk of {self._chunk_bytes} bytes is not allowed; {limit}")
        elif self.conn.their_state is h11.SEND_BODY and not self._is_answered:
            self._expire_in(self.body_seconds)
        elif self.conn.their_state not in INCOMPLETE:
            self._expire_in(None)
            self._limits.request(self)

    def _begin_response(self, start: Message) -> None:
        """Say that the connection closes behind an answer to half a request: a client that was not
        told would send its next one there."""
        if self.conn.their_state is h11.SEND_BODY:
            MutableHeaders(scope=start)["Connection"] = "close"

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.transport.close()
        if self.conn.their_state in INCOMPLETE:
            self._expire_in(self.head_seconds)
            self._limits.wait(self)
        else:
            self._expire_in(None)

    def send_away(self) -> None:
        """Close after the answer that is on its way, or now if no request has begun to come."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.shutdown()

    def descriptor(self) -> int:
        """Return its socket's; -1 if that is closed."""
        return int(self.transport.get_extra_info("socket").fileno())

    def has_unread(self) -> bool:
        """Whether something lies in its socket."""
        if (descriptor := self.descriptor()) < 0:
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def refuse_rest(self) -> None:
        """Refuse a request whose body has not come to its end."""
        if self.conn.their_state is h11.SEND_BODY and not self._is_answered:
            self._refuse(503, "the target stops, and the request's body has not come")

    def end(self) -> None:
        """Close, as no whole request has come; say so where the head of one has."""
        if self.conn.their_state is h11.IDLE:
            self._expire_in(None)
            self.transport.abort()
            return
        self._refuse(503, "there are too many connections, and the request has not come whole")
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)  # TLS would wait for the client

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        words = "the request is not HTTP, or its head is too long"
        self._refuse(400, cast(_CountingChunks, self.conn).fault or words)

    def _is_sending(self) -> bool:
        """Return true for a client whose request is not read to its end, or is no HTTP."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    @property
    def _chunk_bytes(self) -> int:
        """Bytes that are missing of a chunk; h11 has no public name for them before they come."""
        return int(getattr(getattr(self.conn, "_reader", None), "_bytes_in_chunk", 0))

    def _expire_in(self, seconds: float | None) -> None:
        """Set the time that is left; None: as much as it takes."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        part = "body" if self.conn.their_state is h11.SEND_BODY else "head"
        self._refuse(408, f"the rest of the request's {part} did not come in time")

    def _refuse(self, status: int, message: str) -> None:
        """Answer in place of the application, where it has not begun to, and close."""
        self._expire_in(None)
        if self.transport.is_closing():
            return
        begun = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if not begun and (self.conn.trailing_data[0] or self.conn.their_state is not h11.IDLE):
            self._send(status, json.dumps(errors.body(status, message)).encode())
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _send(self, status: int, body: bytes) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        head = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
