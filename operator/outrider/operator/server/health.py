"""`/healthz`, `/readyz` and `/metrics` of the operator's own process.

It is not healthy once a watch has ended or stays silent, even if everything else still answers: its
caches would be out of date. Leaves restarting to the kubelet.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from outrider.contract.listening import listen
from outrider.operator.server.metrics import OperatorMetrics

WATCHING = "watcher for "
"""Beginning of the names of kopf's watching tasks."""
NOT_BEGUN = "not all watches have begun; the log says which could not"
SILENCE_SECONDS = 90
"""Longest silence of a watch; the leader's own lease is watched and changes every few seconds."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class HealthServer:
    """State that the probes report."""

    metrics: OperatorMetrics
    silence_seconds: float = SILENCE_SECONDS
    leading: bool = False
    """Followers watch nothing and are healthy."""
    watchers: Callable[[], str] = field(default=lambda: "")
    """Returns why the watches are not to be trusted; empty if they are."""
    heard: Callable[[], float] = field(default=time.monotonic)
    """Returns the time of the last event of a watch."""
    _distrusted: str = ""

    def distrust(self, problem: str) -> None:
        """Mark the caches as wrong for the rest of this process."""
        self._distrusted = problem

    def problem(self) -> str:
        """Return why the process should be restarted; empty if all is well."""
        if not self.leading:
            return ""
        silence = time.monotonic() - self.heard()
        self.metrics.watch_age.set(silence)
        if silence > self.silence_seconds:
            return f"no watch has reported anything for {silence:.0f} s"
        return self._distrusted or self.watchers()


async def serve(health: HealthServer, host: str, port: int) -> web.AppRunner:
    """Serve probes and Prometheus until the runner is cleaned up; raises `OSError`."""

    async def healthz(_: web.Request) -> web.Response:
        problem = health.problem()
        if problem:
            log.error("not healthy: %s", problem)
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="leading" if health.leading else "following")

    async def metrics(_: web.Request) -> web.Response:
        health.problem()
        body = generate_latest(health.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listen(host, port)).start()
    return runner


def watching_tasks() -> frozenset["asyncio.Task[Any]"]:
    """Return kopf's watching tasks. It has no public name for them, so they are taken as they are
    called in 1.44 and 1.45; where there are none, only a full read finds a watch that has ended."""
    found = frozenset(t for t in asyncio.all_tasks() if t.get_name().startswith(WATCHING))
    if not found:
        log.warning("kopf's watches cannot be told apart: one that ends is found by full reads")
    return found


def ended(tasks: Iterable["asyncio.Task[Any]"]) -> str:
    """Name the watching tasks that have ended; kopf itself goes on without them."""
    gone = sorted(task.get_name().removeprefix(WATCHING) for task in tasks if task.done())
    return f"nobody watches {', '.join(gone)} any more" if gone else ""
