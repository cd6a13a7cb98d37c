"""Health of one worker, as it says itself (grpc.health.v1): it serves, or it hangs.

Leaves to the supervisor what becomes of one that does.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import grpc
from grpc.aio import Channel
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cli.access import TargetAccess
from outrider.contract.process import LIVENESS
from outrider.contract.process_status import is_stopped

WHOLE = ""
"""Name of the health service that says whether a worker is ready."""
HEALTH_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the worker's last life
)
AGAIN_SECONDS = 0.05
"""Seconds between two questions for the health of a worker that starts."""


class Probing(NamedTuple):
    """How a worker is asked whether it lives, as a kubelet asks a pod."""

    period: float = 10.0
    """Seconds between two questions."""
    answer: float = 5.0
    """Seconds within which it answers."""
    failures: int = 6
    """Failures in a row after which it is killed, and started again."""


class Place(NamedTuple):
    """Where a worker is asked."""

    address: str
    """Host and port of the worker: `host:port`."""
    access: TargetAccess


class Liveness:
    """Questions whether one life of a worker goes on. Use as `async with`.

    One channel serves all of them, for as long as they go to the same place.
    """

    def __init__(self, process: int, place: Callable[[], Place]) -> None:
        """`process`: the worker's id; `place` is asked before each question."""
        self._process = process
        self._place = place
        self._asked: Place | None = None
        self._channel: Channel | None = None
        self._answered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self._close()

    async def hangs(self, seconds: float) -> bool:
        """Return whether the worker does not go on; it has so many seconds to answer.

        Until it answers for the first time it may fetch a model, which takes what it takes: then
        only one that a signal has stopped hangs.
        """
        lives = await _is_serving(await self._open(), LIVENESS, seconds)
        self._answered = self._answered or lives is not None
        return not lives if self._answered else is_stopped(self._process)

    async def _open(self) -> Channel:
        place = self._place()
        if self._channel is None or place != self._asked:
            await self._close()
            self._channel = place.access.channel(place.address, HEALTH_OPTIONS)
            self._asked = place
        return self._channel

    async def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


async def serving(address: str, access: TargetAccess) -> None:
    """Return once the worker at `address` (host:port) says that it serves."""
    async with access.channel(address, HEALTH_OPTIONS) as channel:
        while not await _is_serving(channel, WHOLE, 2.0):
            await asyncio.sleep(AGAIN_SECONDS)


async def _is_serving(channel: Channel, service: str, seconds: float) -> bool | None:
    """Return whether a health service serves; None where nobody answers."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:  # it may not listen yet, or be too busy
        asked = health_pb2.HealthCheckRequest(service=service)
        answer = await stub.Check(asked, timeout=seconds)
    except grpc.RpcError:
        return None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
