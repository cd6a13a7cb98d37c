"""Odd requests: fuzzed bodies and messages, and attacks on the edge in front of the engine.

Each attack returns what was answered wrongly, in words: whatever is sent is answered, or refused by
a name of its own.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import httpx
import hypothesis
from hypothesis import strategies as st

from outrider.protos.v1 import inference_pb2
from outrider.worker.host.descriptors import most_descriptors
from tests.attack.load import SILENCE
from tests.attack.record import Kind, Problem, Record, Span
from tests.attack.rooms import Room
from tests.process import test_fuzz_grpc as over_grpc
from tests.process import test_fuzz_http as over_http

PAUSE_SECONDS = (0.1, 1.0)
"""Before each attack."""
HOLD_SECONDS = (0.5, 3.0)
"""For which connections that attack are kept."""
BODIES, MESSAGES, AT_ONCE = 32, 24, 8
SMALL_CHUNKS = 20_000
CALLS = 1000
SILENT = min(4500, most_descriptors() // 4 * 3)
"""Connections that say nothing: more than a server keeps."""
LARGE_BODIES, LARGE_BYTES = 6, 15 << 20
"""Together more than a server reads at a time."""
PROPERTIES = 1700
"""Properties of a schema that takes a second or two to compile."""
SLOW_REGEXES = ("(.*[aeiou].{20}){6}", "([a-z ,.]{1,60}[aeiou]){1,200}", "(.|\n)*")
CHUNKED = over_http.POST + b"Transfer-Encoding: chunked\r\n\r\n"
Attack = Callable[[Room, random.Random], Awaitable[list[str]]]
Drawn = TypeVar("Drawn")


async def pester(room: Room, seen: Record, rng: random.Random) -> None:
    """Let one attack follow the other, each of them once before any comes again."""
    while True:
        for name in rng.sample(sorted(ATTACKS), len(ATTACKS)):
            await asyncio.sleep(rng.uniform(*PAUSE_SECONDS))
            if seen.over:
                return
            began = seen.clock()
            try:
                wrong = await ATTACKS[name](room, rng)
            except (OSError, httpx.HTTPError, grpc.RpcError) as error:
                wrong = [repr(error)]
            at = Span(began, seen.clock())
            seen.odd[name] += 1
            seen.suspects += [(at, Problem(Kind.ODD, f"{name}: {one}")) for one in wrong]
            seen.say(f"{name}, {at.ended - at.began:.1f} s")


def drawn(strategy: st.SearchStrategy[Drawn], seed: int, count: int) -> list[Drawn]:
    """Return values of a strategy that follow from a seed."""
    found: list[Drawn] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=[hypothesis.Phase.generate],
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(value: Drawn) -> None:
        found.append(value)

    draw()
    return found


BODY = st.one_of(
    over_http.requests().map(lambda request: (request[0], json.dumps(request[1]).encode())),
    st.sampled_from(over_http.BODIES).flatmap(
        lambda body: st.tuples(st.just(body[0]), over_http.broken(json.dumps(body[1])))
    ),
)
"""A path, and bytes that are nearly a body for it."""
MESSAGE = over_grpc.random_requests().filter(lambda request: "SetPolicy" not in request[0])
"""A method that clients may call, and bytes of a message for it: another policy would stay."""


async def fuzz_http(room: Room, rng: random.Random) -> list[str]:
    """Send bodies of which something was changed."""
    sent = await asyncio.to_thread(drawn, BODY, rng.getrandbits(32), BODIES)
    return await all_of(AT_ONCE, [posted(room, *one) for one in sent])


async def fuzz_sockets(room: Room, rng: random.Random) -> list[str]:
    """Send bytes that are no HTTP."""
    sent = [*rng.sample(over_http.RAW, 6), over_http.POST_CHAT + rng.randbytes(60)]
    codes = [await asyncio.to_thread(over_http.raw_status, room.http, one) for one in sent]
    answers = zip(codes, sent, strict=True)
    return [f"{one[:80]!r}: {code}" for code, one in answers if code and not 200 <= code < 500]


async def fuzz_grpc(room: Room, rng: random.Random) -> list[str]:
    """Send messages with odd fields."""
    sent = await asyncio.to_thread(drawn, MESSAGE, rng.getrandbits(32), MESSAGES)
    with grpc.insecure_channel(room.workers["target"]) as channel:
        return await all_of(AT_ONCE, [called(channel, *one) for one in sent])


async def members(room: Room, rng: random.Random) -> list[str]:
    """Send lists and objects of very many members."""
    many = rng.randint(50_000, 700_000)
    sent: Sequence[bytes] = [
        b'{"messages":[%s0]}' % (b"0," * many),
        b'{"messages":[%s{}]}' % (b"{}," * many),
        b'{"prompt":"x","stop":[%s0]}' % (b"0," * many),
        b'{"prompt":"x","logit_bias":{%s"0":0}}' % (b'"1":0,' * many),
    ]
    found = await posted(room, over_http.CHATS, rng.choice(sent))
    sampling = inference_pb2.Sampling(logit_bias=dict.fromkeys(range(50_000), 1.0))
    message = inference_pb2.GenerateRequest(text="x", max_tokens=1, sampling=sampling)
    with grpc.insecure_channel(room.workers["target"]) as channel:
        method = over_grpc.INFERENCE + "Generate"
        return found + await called(channel, method, message.SerializeToString())


async def small_chunks(room: Room, rng: random.Random) -> list[str]:
    """Send a body by the byte, on four connections."""

    async def send() -> list[str]:
        host, _, port = room.http.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        answer = b""
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(CHUNKED + b"1\r\n \r\n" * SMALL_CHUNKS)
            answer = await reader.read()
        return [] if not answer or answer.startswith(b"HTTP/1.1 400 ") else [f"{answer[:200]!r}"]

    return await all_of(4, [send() for _ in range(4)])


async def silent_connections(room: Room, rng: random.Random) -> list[str]:
    """Open connections that say nothing, or half of something."""
    for sent in (b"", over_http.POST):
        async with connections(room, SILENT, sent):
            await asyncio.sleep(rng.uniform(*HOLD_SECONDS))
    return []


async def bodies_in_flight(room: Room, rng: random.Random) -> list[str]:
    """Send bodies of megabytes whose ends do not come."""
    head = over_http.POST + b"Content-Length: %d\r\n\r\n" % (LARGE_BYTES + 1)
    async with connections(room, LARGE_BODIES, head + b" " * LARGE_BYTES):
        await asyncio.sleep(rng.uniform(*HOLD_SECONDS))
    return []


async def cancelled_calls(room: Room, rng: random.Random) -> list[str]:
    """Open calls, and cancel them at once or a little later."""
    message = inference_pb2.GenerateRequest(text="hello " * 100, max_tokens=50)
    async with grpc.aio.insecure_channel(room.workers["target"]) as channel:
        generate: Any = channel.unary_stream(over_grpc.INFERENCE + "Generate")
        for _ in range(0, CALLS, 50):
            calls = [generate(message.SerializeToString()) for _ in range(50)]
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.1)))
            for call in calls:
                call.cancel()
    return []


async def slow_forms(room: Room, rng: random.Random) -> list[str]:
    """Ask for answers in forms that take long to compile, or to follow."""

    def asked(form: dict[str, Any]) -> Awaitable[list[str]]:
        messages = [{"role": "user", "content": "x"}]
        body = {"messages": messages, "max_tokens": 20, **form}
        return posted(room, over_http.CHATS, json.dumps(body).encode())

    name = f"p{rng.getrandbits(32)}"
    fields = {f"{name}_{n}": {"type": "integer"} for n in range(PROPERTIES)}
    schema = {"name": "s", "schema": {"type": "object", "properties": fields}}
    schemas = [{"response_format": {"type": "json_schema", "json_schema": schema}}] * 3
    regexes = [{"structured_outputs": {"regex": one}} for one in SLOW_REGEXES]
    return await all_of(AT_ONCE, [asked(form) for form in (*schemas, *regexes)])


ATTACKS: Mapping[str, Attack] = {
    one.__name__.replace("_", " "): one
    for one in (
        fuzz_http, fuzz_sockets, fuzz_grpc, members, small_chunks, silent_connections,
        bodies_in_flight, cancelled_calls, slow_forms,
    )
}  # fmt: skip


async def posted(room: Room, path: str, body: bytes) -> list[str]:
    """Send a body; return what is wrong with its answer."""
    async with httpx.AsyncClient(trust_env=False, timeout=SILENCE) as client:
        answer = await client.post(f"{room.base}{path}", content=body, headers=over_http.JSON)
    told = f"{path} {body[:400]!r}: {answer.status_code} {answer.text[:400]}"
    try:
        over_http.check(answer)
    except (AssertionError, LookupError, ValueError) as error:
        return [f"{told} {error!r}"]
    return []


async def called(channel: grpc.Channel, method: str, payload: bytes) -> list[str]:
    """Call a method; return what is wrong with its status."""
    status = await asyncio.to_thread(over_grpc.status, channel, method, payload)
    fine = over_grpc.FINE | {grpc.StatusCode.DEADLINE_EXCEEDED}  # a busy machine
    return [] if status in fine else [f"{method} {payload[:400]!r}: {status}"]


async def all_of(most: int, asked: Sequence[Awaitable[list[str]]]) -> list[str]:
    """Wait for all, so many at once; return what was wrong with any."""
    room = asyncio.Semaphore(most)

    async def one(asking: Awaitable[list[str]]) -> list[str]:
        async with room:
            try:
                return await asking
            except (OSError, httpx.HTTPError) as error:
                return [repr(error)]

    found = await asyncio.gather(*(one(asking) for asking in asked))
    return [words for each in found for words in each]


@contextlib.asynccontextmanager
async def connections(room: Room, count: int, sent: bytes) -> AsyncIterator[None]:
    """Connections on which something has been sent, until the block is left."""
    host, _, port = room.http.rpartition(":")
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(count):
            with contextlib.suppress(ConnectionError):  # the server has had enough of them
                _, writer = await asyncio.open_connection(host, int(port))
                writers.append(writer)
                writer.write(sent)
        yield
    finally:
        for writer in writers:
            writer.transport.abort()
