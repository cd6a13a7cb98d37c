"""Health of a worker: waits until it says that it serves (grpc.health.v1, the service named "").

Knows nothing of processes; the caller watches for their end.
"""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cli.access import Access

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the worker's last life
)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_AGAIN_SECONDS = 0.05


async def serving(address: str, access: Access) -> None:
    """Return once the worker at `address` (host:port) serves."""
    async with access.channel(address, _OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while not await _serves(stub):
            await asyncio.sleep(_AGAIN_SECONDS)


async def _serves(stub: health_pb2_grpc.HealthStub) -> bool:
    request = health_pb2.HealthCheckRequest(service="")
    try:
        answer = await stub.Check(request, timeout=2.0)
    except grpc.RpcError:  # not listening yet, or too busy loading to answer
        return False
    return bool(answer.status == _SERVING)
