"""The worker's health service: the library's, with a watch that survives other watchers.

What is set, and when, is `server_parts`'s.
"""

import asyncio
from collections import defaultdict

from grpc_health.v1 import health


class _Watchers(defaultdict[str, asyncio.Condition]):
    """What watchers of a service wait on; that of the whole worker is kept when one leaves."""

    def __delitem__(self, service: str) -> None:
        if service:
            super().__delitem__(service)


class HealthService(health.aio.HealthServicer):
    """grpc.health.v1 in which a watcher that leaves does not make the others deaf.

    The library (grpcio-health-checking 1.85) forgets what all of them wait on as the first goes, so
    that a balancing client could miss for ever that a target serves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._server_watchers = _Watchers(asyncio.Condition)
