"""A draft and a target that break the rules of the link, for tests; what they send is raw bytes.

Both say a correct Hello first, made from the other side's, unless told otherwise.
"""

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
import numpy as np

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.link import payloads
from outrider.worker.link.draft_records import FROM_DRAFT
from outrider.worker.link.records import ALIGNMENT, HEADER, NOT_TIMED
from outrider.worker.link.wire import Capacity, Close, FromDraft, FromTarget, Grow, Open
from outrider.worker.tree.growth import Growth

SERVICE = "outrider.protos.v1.Drafter"
PAIR = f"/{SERVICE}/Pair"
SECONDS = 30.0
UNBOUNDED = (
    *(("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)),
    ("grpc.http2.max_ping_strikes", 0),
)
"""What is sent is judged, however large: a receiver of megabytes pings to learn how fast they come,
and on a busy machine gRPC would end the connection for that."""

Misdeed = Callable[[Open], Iterable[bytes]]
"""What to send when a session is opened."""


class HostileDraft:
    """A server that says `hello` (bytes; by default a good one) and misbehaves in each session."""

    def __init__(self, misdeed: Misdeed, hello: Callable[[pb.Hello], bytes] | None = None) -> None:
        self.streams = 0
        """How often a target connected."""
        self.opened = 0
        """Sessions that targets opened."""
        self.closes: queue.Queue[Close] = queue.Queue()
        """What the target closed, and why."""
        self._misdeed = misdeed
        self._hello = hello or good_hello
        self._server = grpc.server(ThreadPoolExecutor(8), options=UNBOUNDED)
        method: Any = grpc.stream_stream_rpc_method_handler(self._pair)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Pair": method}),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    def _pair(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self.streams += 1
        with contextlib.suppress(grpc.RpcError):  # the target ended the stream
            yield self._hello(pb.TargetMessage.FromString(next(incoming)).hello)
            for message in (m for payload in incoming for m in payloads.from_target(payload)):
                if isinstance(message, Open):
                    self.opened += 1
                    yield from self._misdeed(message)
                elif isinstance(message, Close):
                    self.closes.put(message)


class HostileTarget:
    """A stream to a real draft; says `hello` (bytes, None for silence; by default a good one)."""

    def __init__(
        self, address: str, hello: Callable[[pb.Hello], bytes | None] | None = None
    ) -> None:
        self._channel = grpc.insecure_channel(address, options=UNBOUNDED)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        pair: Any = self._channel.stream_stream(PAIR)
        self._incoming = pair(iter(self._outgoing.get, None), timeout=SECONDS)
        draft = pb.DraftMessage.FromString(next(self._incoming)).hello
        good = pb.TargetMessage(hello=hello_like(draft)).SerializeToString()
        first = hello(draft) if hello else good
        if first is not None:
            self.send(first)

    def send(self, message: FromTarget | bytes) -> None:
        self._outgoing.put(
            message if isinstance(message, bytes) else payloads.TARGETS.written([message])
        )

    def close_reason(self, session: int) -> Close:
        """The draft's next Close of a session; what comes before it is skipped."""
        for message in self._messages():
            if isinstance(message, Close) and message.session == session:
                return message
        raise AssertionError(f"the stream ended and session {session} was never closed")

    def capacity(self) -> Capacity:
        """The draft's next Capacity; what comes before it is skipped."""
        for message in self._messages():
            if isinstance(message, Capacity):
                return message
        raise AssertionError("the stream ended and there was never room")

    def _messages(self) -> Iterator[FromDraft]:
        for payload in self._incoming:
            yield from payloads.from_draft(payload)

    def refusal(self) -> str:
        """Why the draft ends the stream."""
        try:
            for _ in self._incoming:
                pass
        except grpc.RpcError as error:
            return str(error)
        return "it ended well"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outgoing.put(None)
        self._incoming.cancel()
        self._channel.close()


def hello_like(peer: pb.Hello, **changes: Any) -> pb.Hello:
    """A Hello that pairs with `peer`."""
    hello = pb.Hello(
        protocol_min=peer.protocol_min,
        protocol_max=peer.protocol_max,
        revision="made up",
        incarnation=7,
        context_length=peer.context_length,
        vocabulary_size=peer.vocabulary_size,
        vocabulary_block=peer.vocabulary_block,
        vocabulary_hashes=peer.vocabulary_hashes,
        sessions=8,
    )
    for name, value in changes.items():
        field = getattr(hello, name)
        if isinstance(value, list):
            del field[:]
            field.extend(value)
        else:
            setattr(hello, name, value)
    return hello


def good_hello(target: pb.Hello, **changes: Any) -> bytes:
    """A draft's first message."""
    return pb.DraftMessage(hello=hello_like(target, **changes)).SerializeToString()


def record_for_target(kind: int, body: bytes) -> bytes:
    """A payload of one record, whatever its body is."""
    head = HEADER.pack(len(body), 0, kind, 0, NOT_TIMED)
    records = head + body + bytes(-len(body) % ALIGNMENT)
    return pb.DraftMessage(records=records).SerializeToString()


def grow(
    opening: Open,
    parents: list[int],
    tokens: list[int] | None = None,
    logprobs: list[float] | None = None,
    session: int | None = None,
    root_position: int | None = None,
    first_id: int = 1,
) -> bytes:
    """A Grow below the root of `opening`, right but for what is given."""
    growth = Growth(
        len(opening.tokens) - 1 if root_position is None else root_position,
        first_id,
        np.array(parents, np.int64),
        np.array(tokens or [5] * len(parents), np.int32),
        np.array(logprobs or [-0.5] * len(parents), np.float32),
    )
    message = Grow(opening.session if session is None else session, growth)
    return record_for_target(*FROM_DRAFT.body(message))
