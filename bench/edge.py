"""What one hostile client can do to another: `python -m bench.edge`.

Runs SmolLM2 by `outrider run` and asks it, calm and beside each attack, for its health and for the
first token after a short prompt. An attack is a process of its own, on the same machine: bodies of
many members, bodies that wait in mid-way, chunks of one byte, connections that say nothing, calls
that are cancelled at once, schemas that compile slowly, and gRPC requests with many biases. Beside
the times stands by how much the memory of the server has grown. Linux only.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
from rich.console import Console
from rich.table import Table

from bench.record.report import RESULTS, Spread, median_and_range, say, write_run
from bench.soak import resident, running
from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.host.descriptors import take_all_descriptors

SERVICE = Path(__file__).parents[1] / "examples" / "smollm2.yaml"
CHAT = "/v1/chat/completions"
PROMPT = "Why is the sky blue in the morning?"
SETTLE_SECONDS, PAUSE_SECONDS, SAMPLE_SECONDS = 1.0, 0.1, 0.05
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class Place:
    """A server to attack."""

    url: str
    grpc: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of its HTTP server."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 80)

    async def post(self, client: httpx.AsyncClient, body: bytes) -> None:
        """Send one chat, whatever comes back."""
        with contextlib.suppress(httpx.HTTPError):
            await client.post(self.url + CHAT, content=body, headers={"Content-Type": JSON})


JSON = "application/json"
Attack = Callable[[Place], Awaitable[None]]
"""Goes on until it is cancelled."""


async def wrong_members(place: Place) -> None:
    """5.7 MiB of members that are no messages, one body after the other."""
    await _again(place, b'{"messages":[' + b"0," * 2_990_000 + b"0]}")


async def empty_messages(place: Place) -> None:
    """5.5 MiB of messages without text."""
    message = b'{"role":"user","content":""},'
    await _again(place, b'{"messages":[' + message * 199_999 + message[:-1] + b"]}")


async def allowed_members(place: Place) -> None:
    """Bodies of just as many members as are read, all of them wrong."""
    await _again(place, b'{"messages":[' + b"0," * 260_000 + b"0]}")


async def _again(place: Place, body: bytes) -> None:
    async with httpx.AsyncClient(timeout=120.0, trust_env=False) as client:
        while True:
            await place.post(client, body)


async def bytes_in_chunks(place: Place) -> None:
    """A body in chunks of one byte, on four connections."""
    await _on_connections(
        4, place, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 4000
    )


async def bodies_that_wait(place: Place) -> None:
    """Fifteen of sixteen MiB on each of 60 connections, and nothing more."""
    head, rest = f"{HEAD}Content-Length: {16 << 20}\r\n\r\n", b" " * (15 << 20)

    async def wait() -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*place.address)
            writer.write(head.encode() + rest)
            await writer.drain()
            await reader.read()

    while True:
        await asyncio.gather(*[wait() for _ in range(60)])


async def _on_connections(count: int, place: Place, head: str, part: bytes) -> None:
    """Write a part again and again, and connect anew once a connection is closed."""

    async def write() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*place.address)
                writer.write(head.encode())
                while True:
                    writer.write(part)
                    await writer.drain()

    await asyncio.gather(*[write() for _ in range(count)])


async def silent_connections(place: Place, sent: bytes = b"") -> None:
    """Connections that say nothing, or begin to, more than are kept."""
    held: list[socket.socket] = []
    while True:
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_connect(one, place.address)
            held.append(one)
            one.send(sent)
        if len(held) > 6000:
            held.pop(0).close()


async def cancelled_calls(place: Place) -> None:
    """gRPC calls, fifty at once, that are given up after two milliseconds."""
    async with grpc.aio.insecure_channel(place.grpc) as channel:
        generate = channel.unary_stream("/outrider.protos.v1.Inference/Generate")
        request = pb.GenerateRequest(text="hello there " * 200, max_tokens=50).SerializeToString()
        while True:
            calls = [generate(request) for _ in range(50)]
            await asyncio.sleep(0.002)
            for call in calls:
                call.cancel()


async def slow_schemas(place: Place) -> None:
    """Schemas of 59 KB, sixteen at once, each another."""

    async def ask(client: httpx.AsyncClient) -> None:
        while True:
            number = random.randrange(10**6)
            names = {f"p{number}_{at}": {"type": "integer"} for at in range(1700)}
            schema = {"name": "s", "schema": {"type": "object", "properties": names}}
            form = {"type": "json_schema", "json_schema": schema}
            turns = [{"role": "user", "content": "Say hi."}]
            body = {"messages": turns, "max_tokens": 4, "response_format": form}
            await place.post(client, json.dumps(body).encode())

    async with httpx.AsyncClient(timeout=120.0, trust_env=False) as client:
        await asyncio.gather(*[ask(client) for _ in range(16)])


async def many_biases(place: Place) -> None:
    """gRPC requests with 1.2 million biases."""
    biases = {token: 1.0 for token in range(1_200_000)}
    request = pb.GenerateRequest(
        text="hello", max_tokens=4, sampling=pb.Sampling(logit_bias=biases)
    )
    sent = request.SerializeToString()
    async with grpc.aio.insecure_channel(place.grpc) as channel:
        generate = channel.unary_stream("/outrider.protos.v1.Inference/Generate")
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in generate(sent):
                    pass


ATTACKS: Mapping[str, Attack] = {
    "members that are wrong, 5.7 MiB": wrong_members,
    "as many members as are read": allowed_members,
    "empty messages, 5.5 MiB": empty_messages,
    "biases over gRPC, 12.6 MiB": many_biases,
    "chunks of one byte": bytes_in_chunks,
    "bodies that wait": bodies_that_wait,
    "silent connections": silent_connections,
    "beginnings of requests": partial(silent_connections, sent=b"G"),
    "cancelled calls": cancelled_calls,
    "slow schemas": slow_schemas,
}


@dataclass(frozen=True, slots=True)
class OtherClient:
    """What another client saw."""

    health: Spread
    """Seconds of `/healthz`."""
    first_token: Spread
    """Seconds to the first token."""
    grown_mib: float = 0.0
    """Memory of the server beside the attack, less that before it."""


def main() -> int:
    """Measure, write JSON, print a table; or attack."""
    options = parse()
    if options.attack:
        take_all_descriptors()
        asyncio.run(attack(ATTACKS[options.attack], Place(options.url, options.grpc)))
    load = os.getloadavg()
    with running(SERVICE) as service:
        server = next(pid for pid, role in service.processes.items() if role == "target 0 server")
        place = Place(service.url.removesuffix("/v1"), service.grpc)
        found = asyncio.run(measured(options, place, server))
    calm = found["calm"]
    ratios = {
        f"{name}, {what} over calm": getattr(one, kind).median / getattr(calm, kind).median
        for name, one in found.items()
        if one is not calm
        for what, kind in (("health", "health"), ("first token", "first_token"))
    }
    write_run(options.out, "edge", found, ratios, load)
    Console().print(table(found))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asks", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--out", type=Path, default=RESULTS / "edge.json")
    for hidden in ("--attack", "--url", "--grpc"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


async def attack(attacks: Attack, place: Place) -> None:
    """Attack until this process is ended, or the server is gone."""
    while True:
        with contextlib.suppress(OSError, grpc.aio.AioRpcError):
            await attacks(place)


async def measured(
    options: argparse.Namespace, place: Place, server: int
) -> dict[str, OtherClient]:
    """Return what another client saw, calm and beside each attack."""
    async with httpx.AsyncClient(base_url=place.url, timeout=120.0, trust_env=False) as client:
        await asked(client, 3)
        found = {"calm": await asked(client, options.asks)}
        for name in options.only:
            say(name)
            before = resident(server)
            async with attacking(name, place), watched(server) as most:
                await asyncio.sleep(SETTLE_SECONDS)
                seen = await asked(client, options.asks)
            grown = (most() - before) / 2**20
            found[name] = OtherClient(seen.health, seen.first_token, grown)
            await _calm(client)
    return found


@contextlib.asynccontextmanager
async def attacking(name: str, place: Place) -> AsyncIterator[None]:
    """Run an attack in a process of its own."""
    command = (sys.executable, "-m", "bench.edge", "--attack", name)
    command += ("--url", place.url, "--grpc", place.grpc)
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield
        if process.returncode is not None:
            raise SystemExit(f"bench.edge: the attack {name!r} ended by itself")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def watched(server: int) -> AsyncIterator[Callable[[], int]]:
    """Watch the memory of a process; yield what returns its most bytes so far."""
    sizes = [resident(server)]

    async def watch() -> None:
        while True:
            sizes.append(resident(server))
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.create_task(watch())
    try:
        yield lambda: max(sizes)
    finally:
        task.cancel()


async def asked(client: httpx.AsyncClient, asks: int) -> OtherClient:
    """Ask for health and for a first token, in turns."""
    health, first = [], []
    for _ in range(asks):
        began = time.perf_counter()
        await client.get("/healthz")
        health.append(time.perf_counter() - began)
        first.append(await first_token(client))
        await asyncio.sleep(PAUSE_SECONDS)
    return OtherClient(median_and_range(health), median_and_range(first))


async def first_token(client: httpx.AsyncClient) -> float:
    """Return the seconds to the first token after a short prompt."""
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "stream": True}
    began = time.perf_counter()
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if '"text"' in line:
                return time.perf_counter() - began
    raise SystemExit("bench.edge: an answer without a token")


async def _calm(client: httpx.AsyncClient) -> None:
    """Wait until what an attack has left is worked off: three quick answers in a row."""
    quick: list[float] = [1.0] * 3
    while statistics.fmean(quick) > 0.3:
        await asyncio.sleep(1.0)
        quick = [*quick[1:], await first_token(client)]


def table(found: Mapping[str, OtherClient]) -> Table:
    """Lay out times in milliseconds, and memory."""
    made = Table(title="Another client, beside one attack")
    for title in ("", "/healthz, ms", "most", "first token, ms", "most", "memory, MiB"):
        made.add_column(title, justify="right" if title else "left")
    for name, one in found.items():
        times = (one.health.median, one.health.high, one.first_token.median, one.first_token.high)
        shown = (f"{1000 * seconds:.0f}" for seconds in times)
        made.add_row(name, *shown, f"{one.grown_mib:+.0f}")
    return made


if __name__ == "__main__":
    sys.exit(main())
