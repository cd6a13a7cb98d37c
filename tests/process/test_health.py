"""A worker's health service, as balancing clients watch it."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.worker.server.call_errors import CallErrors
from outrider.worker.server.readiness import HealthService

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def watched(health: HealthService, address: str) -> list[int]:
    """What the second of two watchers is told after the first has left."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        first, second = (stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2))
        seen = [(await one.read()).status for one in (first, second)]
        waiting = health._server_watchers[""]._waiters
        first.cancel()
        while len(waiting) != 1:
            await asyncio.sleep(0.001)
        await health.set("", SERVING)
        return [*seen, (await second.read()).status]


def test_a_watcher_is_told_of_a_change_after_another_one_left() -> None:
    async def body() -> list[Any]:
        server = grpc.aio.server(interceptors=(CallErrors(),))
        health = HealthService()
        await health.set("", NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with asyncio.timeout(60):
                return await watched(health, f"127.0.0.1:{port}")
        finally:
            await server.stop(None)

    assert asyncio.run(body()) == [NOT_SERVING, NOT_SERVING, SERVING]
