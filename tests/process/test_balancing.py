"""One client over several targets: real gRPC servers that are full, stop, and come back."""

import asyncio
import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.client import AsyncClient, Client, ClientError, Overloaded, Unavailable
from outrider.client.channel import MAX_ATTEMPTS
from outrider.protos.v1 import inference_pb2, inference_pb2_grpc
from tests.process.name_server import name_server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
STOPPING = grpc.StatusCode.UNAVAILABLE
ROUNDS = 10


class Target(inference_pb2_grpc.InferenceServicer):
    """Answers two tokens; counts how often it was asked."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.asked = 0
        self.refusal: grpc.StatusCode | None = None
        """Ends each call with this before its first token."""
        self.broken = False
        """Ends each call after its first message."""
        self.address = address
        self._lock = threading.Lock()
        self.start()

    def start(self) -> None:
        """Begins a life, at the address of the last one."""
        self._pool = futures.ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        self.health = health.HealthServicer()
        inference_pb2_grpc.add_InferenceServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.health.set("", SERVING)
        host = self.address.rpartition(":")[0]
        self.address = f"{host}:{self._server.add_insecure_port(self.address)}"
        self._server.start()

    def stop(self) -> None:
        """Nobody listens there afterwards."""
        self._server.stop(None).wait()
        self._pool.shutdown()

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> Iterator[inference_pb2.GenerateResponse]:
        with self._lock:
            self.asked += 1
        if self.refusal is not None:
            context.abort(self.refusal, "refused")
        yield inference_pb2.GenerateResponse(token_ids=[1, 2], passes=1)
        if self.broken:
            context.abort(STOPPING, "its engine is gone")
        yield inference_pb2.GenerateResponse(finish_reason=inference_pb2.FINISH_REASON_LENGTH)


@pytest.fixture
def targets() -> Iterator[tuple[Target, Target]]:
    with contextlib.ExitStack() as stack:
        both = Target(), Target()
        for target in both:
            stack.callback(target.stop)
        yield both


class Blocking:
    """The blocking client; `ask` completes one request."""

    def __init__(self, *addresses: str) -> None:
        self._client = Client(addresses, timeout=30)

    def ask(self) -> None:
        assert self._client.complete("hi").token_ids == (1, 2)

    def close(self) -> None:
        self._client.close()


class Asyncio:
    """The asyncio client, on an event loop of its own."""

    def __init__(self, *addresses: str) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open(addresses))

    async def _open(self, addresses: tuple[str, ...]) -> AsyncClient:
        return AsyncClient(addresses, timeout=30)

    def ask(self) -> None:
        assert self._runner.run(self._client.complete("hi")).token_ids == (1, 2)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


Opened = Blocking | Asyncio
Open = Callable[..., Opened]


@pytest.fixture(params=[Blocking, Asyncio], ids=["sync", "async"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def at(*addresses: str) -> Opened:
            client: Opened = request.param(*addresses)
            stack.callback(client.close)
            return client

        yield at


@pytest.fixture
def client(opened: Open, targets: tuple[Target, Target]) -> Opened:
    """A client that has found both targets."""
    client = opened(*(target.address for target in targets))
    for target in targets:
        ask_until_it_answers(client, target)
    return client


def ask_until_it_answers(client: Opened, target: Target) -> None:
    before = target.asked
    while target.asked == before:
        client.ask()


def ask_until_only(client: Opened, target: Target, other: Target) -> None:
    """Asks until a dozen calls in a row have gone to `target`."""
    alone = 0
    while alone < 12:
        before = other.asked
        client.ask()
        alone = alone + 1 if other.asked == before else 0


def asked(client: Opened, *targets: Target) -> list[int]:
    """How often each was asked in some rounds of one call for each."""
    before = [target.asked for target in targets]
    for _ in range(ROUNDS * len(targets)):
        client.ask()
    return [target.asked - start for target, start in zip(targets, before, strict=True)]


def test_calls_go_to_all_targets_in_turn(client: Opened, targets: tuple[Target, Target]) -> None:
    assert asked(client, *targets) == [ROUNDS, ROUNDS]


def test_addresses_with_commas_between_are_several(targets: tuple[Target, Target]) -> None:
    with Client(",".join(target.address for target in targets), timeout=30) as client:
        while not all(target.asked for target in targets):
            client.complete("hi")


def test_an_address_where_nobody_answers_costs_no_call(
    opened: Open, targets: tuple[Target, Target]
) -> None:
    targets[1].stop()
    client = opened(*(target.address for target in targets))
    assert asked(client, targets[0]) == [ROUNDS]
    targets[1].start()


def test_a_stopped_target_costs_no_call_and_gets_calls_again(
    client: Opened, targets: tuple[Target, Target]
) -> None:
    for _ in range(2):
        targets[0].stop()
        for _ in range(ROUNDS):
            client.ask()
        targets[0].start()
        ask_until_it_answers(client, targets[0])


def test_a_target_that_says_it_does_not_serve_gets_no_calls_until_it_does(
    client: Opened, targets: tuple[Target, Target]
) -> None:
    targets[0].health.set("", NOT_SERVING)
    ask_until_only(client, targets[1], targets[0])
    targets[0].health.set("", SERVING)
    ask_until_it_answers(client, targets[0])


@pytest.mark.parametrize("refusal", [FULL, STOPPING])
def test_a_call_that_one_target_refuses_is_answered_by_another(
    client: Opened, targets: tuple[Target, Target], refusal: grpc.StatusCode
) -> None:
    targets[0].refusal = refusal
    tried = targets[0].asked
    assert asked(client, targets[1]) == [ROUNDS]
    assert targets[0].asked > tried


def test_most_calls_of_many_at_once_get_past_a_full_target(
    targets: tuple[Target, Target],
) -> None:
    """Turns are shared, so that a try may meet the full one again: rare, and said to be so."""
    targets[0].refusal = FULL

    def ask(_: int) -> bool:
        try:
            return bool(client.complete("hi").token_ids)
        except Overloaded:
            return False

    addresses = [target.address for target in targets]
    with Client(addresses, timeout=60) as client, futures.ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(ask, range(200)))
    assert sum(answered) > 150


@pytest.mark.parametrize(("refusal", "error"), [(FULL, Overloaded), (STOPPING, Unavailable)])
def test_a_refusal_by_all_is_raised_after_all_were_tried(
    client: Opened,
    targets: tuple[Target, Target],
    refusal: grpc.StatusCode,
    error: type[ClientError],
) -> None:
    for target in targets:
        target.refusal, target.asked = refusal, 0
    with pytest.raises(error, match=r"^refused$") as caught:
        client.ask()
    assert caught.value.tokens == 0
    assert sorted(target.asked for target in targets) == [2, MAX_ATTEMPTS - 2]


def test_nobody_at_any_address_is_unavailable(opened: Open, targets: tuple[Target, Target]) -> None:
    for target in targets:
        target.stop()
    with pytest.raises(Unavailable):
        opened(*(target.address for target in targets)).ask()
    for target in targets:
        target.start()


def test_after_the_first_token_nothing_is_tried_again(
    client: Opened, targets: tuple[Target, Target]
) -> None:
    for target in targets:
        target.broken, target.asked = True, 0
    with pytest.raises(Unavailable, match=r"^its engine is gone \(after 2 tokens\)$") as caught:
        client.ask()
    assert caught.value.tokens == 2
    assert sum(target.asked for target in targets) == 1


def test_one_address_is_asked_once(opened: Open, targets: tuple[Target, Target]) -> None:
    targets[0].refusal = FULL
    with pytest.raises(Overloaded):
        opened(targets[0].address).ask()
    assert targets[0].asked == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs more loopback addresses than one")
def test_a_name_of_several_addresses_is_all_of_them() -> None:
    with contextlib.ExitStack() as stack:
        first = Target("127.0.0.2:0")
        stack.callback(first.stop)
        port = first.address.rpartition(":")[2]
        second = Target(f"127.0.0.3:{port}")
        stack.callback(second.stop)
        names = stack.enter_context(name_server("127.0.0.2", "127.0.0.3"))
        client = stack.enter_context(Client(f"dns://{names}/targets.test:{port}", timeout=30))
        for target, _ in itertools.product((first, second), range(2)):
            before = target.asked
            while target.asked == before:
                client.complete("hi")
