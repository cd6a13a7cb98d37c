"""Readiness of a worker: its gRPC health service, and a new target's wait for its first draft.

Leaves to `worker` when a worker is ready.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.contract.process import LIVENESS
from outrider.contract.state import Link, LinkState
from outrider.worker.server.reflection import register_reflection

POLL_SECONDS = 0.02
KNOWN = (LinkState.UP, LinkState.REFUSED)
logger = logging.getLogger(__name__)


class _Watchers(defaultdict[str, asyncio.Condition]):
    """Conditions of the watchers by service; the whole worker's is kept when a watcher leaves."""

    def __delitem__(self, service: str) -> None:
        if service:
            super().__delitem__(service)


class HealthService(health.aio.HealthServicer):
    """grpc.health.v1 in which a watcher that leaves does not cut off the others.

    The library (grpcio-health-checking 1.85) forgets the condition of all of them as the first
    leaves, so that a balancing client could miss for ever that a target serves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._server_watchers = _Watchers(asyncio.Condition)
        self.trouble: Callable[[], str] = lambda: ""
        """Says why the worker has to be started again; nothing: it lives."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        """Return the status of a service; `LIVENESS` is that of `/healthz`."""
        if request.service != LIVENESS:
            return await super().Check(request, context)
        if why := self.trouble():
            logger.error("it does not go on: %s", why)
        statuses = health_pb2.HealthCheckResponse
        return statuses(status=statuses.NOT_SERVING if why else statuses.SERVING)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def register_listed(self, server: grpc.aio.Server, *others: str) -> None:
        """Add the service, and reflection that lists it with the `others` of the server."""
        self.register(server)
        register_reflection(server, (*others, health.SERVICE_NAME))

    async def set_serving(self, serving: bool) -> None:
        """Set the status of the whole worker."""
        statuses = health_pb2.HealthCheckResponse
        await self.set("", statuses.SERVING if serving else statuses.NOT_SERVING)


async def wait_for_first_link(links: Callable[[], Sequence[Link]], seconds: float) -> None:
    """Wait until a link is up or refused, or none is wanted any more; at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (now := links()) and not any(link.state in KNOWN for link in now):
                await asyncio.sleep(POLL_SECONDS)
            return
    logger.warning("no draft was found within %.0f s; decoding plainly meanwhile", seconds)
