"""`/healthz`, `/readyz` and `/metrics` of the operator's own process.

It is not healthy once a watch has ended or stays silent, even if everything else still answers:
then it would go on with an old view of the cluster. Leaves restarting to whoever asks.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from outrider.operator.measured import Measured

SILENCE_SECONDS = 90.0
"""Longest silence of a watch; the leader's own lease is watched and changes every few seconds."""


@dataclass(slots=True)
class Health:
    """What probes are told."""

    measured: Measured
    leading: bool = False
    """Followers watch nothing and are healthy."""
    watchers: Callable[[], str] = field(default=lambda: "")
    """Why the watches are not to be trusted; empty if they are."""
    heard: Callable[[], float] = field(default=time.monotonic)
    """When the API server was last heard through a watch."""

    def problem(self) -> str:
        """Why the process should be started anew; empty if all is well."""
        if not self.leading:
            return ""
        silence = time.monotonic() - self.heard()
        self.measured.watch_age.set(silence)
        if silence > SILENCE_SECONDS:
            return f"no watch has reported anything for {silence:.0f} s"
        return self.watchers()


async def serve(health: Health, host: str, port: int) -> web.AppRunner:
    """Answers probes and Prometheus until the runner is cleaned up."""

    async def healthz(_: web.Request) -> web.Response:
        problem = health.problem()
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="leading" if health.leading else "following")

    async def metrics(_: web.Request) -> web.Response:
        health.problem()
        body = generate_latest(health.measured.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def dead_watchers(expected: frozenset[str]) -> str:
    """Which of kopf's watching tasks are gone; kopf itself lives on without them."""
    names = {task.get_name() for task in asyncio.all_tasks() if not task.done()}
    missing = sorted(kind for kind in expected if not any(_watches(name, kind) for name in names))
    return f"nobody watches {', '.join(missing)} any more" if missing else ""


def _watches(task: str, plural: str) -> bool:
    return task.startswith("watcher for ") and plural in task
