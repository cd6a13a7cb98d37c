"""The running operator: kopf's watches, the passes that they wake, health and leadership.

Puts the parts together; what a pass does is `reconcile`'s.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import kopf

from outrider.operator import access, admission
from outrider.operator import health as serving
from outrider.operator.admission import ListenPlace
from outrider.operator.cluster import Cluster
from outrider.operator.desired import Surroundings
from outrider.operator.health import HealthServer
from outrider.operator.kinds import OPTIONAL
from outrider.operator.leadership import Term, lead
from outrider.operator.metrics import Measured
from outrider.operator.reconcile import Reconciler
from outrider.operator.resync import resync
from outrider.operator.watch_handlers import Watches, settings
from outrider.operator.work_queue import Wakes
from outrider.operator.worker_client import Fleet

log = logging.getLogger(__name__)
LOST = 3
"""Exit status of a leader that is none any more: its pod starts again as a follower."""
BEGINNING_SECONDS, POLL_SECONDS = 25.0, 0.05
"""Longest that kopf may take to begin its watches, which it does after it says that it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """What the operator is started with."""

    worker_image: str
    host: str
    port: int
    term: Term
    namespaces: tuple[str, ...] = ()
    """Empty: all."""
    silence_seconds: float = serving.SILENCE_SECONDS
    """Longest time without a word of the API server."""
    admission: ListenPlace | None = None
    """Where an API server may ask for warnings; None: nowhere."""

    @property
    def scope(self) -> tuple[str | None, ...]:
        """What is watched; None: all namespaces."""
        return self.namespaces or (None,)

    @property
    def hears_itself(self) -> bool:
        """Whether the leader's own Lease is among what is watched: then it is never silent."""
        return not self.namespaces or self.term.namespace in self.namespaces


async def run(options: OperatorOptions) -> int:
    """Serves until SIGTERM or SIGINT (0) or until the lease is lost (3)."""
    measured = Measured()
    health = HealthServer(measured, options.silence_seconds)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = await serving.serve(health, options.host, options.port)
    try:
        place = options.admission
        reviews = measured.reviews
        warning = admission.serving(place, reviews) if place else contextlib.nullcontext()
        async with warning, await Cluster.connect(measured.requests) as cluster:
            kinds = frozenset([kind for kind in OPTIONAL if await cluster.serves(kind)])
            needed = access.needs(options.scope, options.term, kinds)
            await access.check(cluster, needed)
            around = Surroundings(image=options.worker_image, kinds=kinds)
            operator = Operator(options, around, cluster, measured, health, stop)
            leading = asyncio.ensure_future(lead(cluster, options.term, operator.run))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not operator.began:
                leading.cancel()
            await asyncio.wait({leading})
            stopping.cancel()
            return 0 if leading.cancelled() or leading.result() else LOST
    finally:
        await runner.cleanup()


class Operator:
    """What the leader does."""

    def __init__(
        self,
        options: OperatorOptions,
        around: Surroundings,
        cluster: Cluster,
        measured: Measured,
        health: HealthServer,
        stop: asyncio.Event,
    ) -> None:
        self._options = options
        self._around = around
        self._cluster = cluster
        self._measured = measured
        self._health = health
        self._stop = stop
        self.began = False

    async def run(self) -> None:
        """Watches and reconciles until told to stop."""
        self.began = True
        async with Fleet() as fleet, self._passes(fleet) as watches:
            await self._watch(watches)

    @contextlib.asynccontextmanager
    async def _passes(self, fleet: Fleet) -> AsyncIterator[Watches]:
        around = self._around
        watches = Watches(lambda key: wakes.wake(key), around.kinds)
        reconciler = Reconciler(self._cluster, watches, fleet, self._measured, around)
        wakes = Wakes(reconciler.reconcile, reconciler.new, self._measured.queue.observe)
        full = asyncio.ensure_future(
            resync(self._cluster, watches, wakes, self._options.scope, self._health.distrust)
        )
        if self._options.hears_itself:
            self._health.heard = lambda: watches.last_event
        expected = serving.watchers_of(watches.watched, self._options.scope)
        self._health.watchers = lambda: serving.dead_watchers(expected)
        try:
            yield watches
        finally:
            self._health.leading = False
            full.cancel()
            await asyncio.gather(full, return_exceptions=True)
            await wakes.close()

    async def _watch(self, watches: Watches) -> None:
        registry = kopf.OperatorRegistry()
        watches.register(registry)
        ready = asyncio.Event()
        serving_flag = asyncio.ensure_future(self._announce(ready))
        try:
            await kopf.operator(
                registry=registry,
                # kopf's own guess fails for a user without an entry in /etc/passwd.
                identity=self._options.term.identity,  # type: ignore[arg-type]  # its type is private
                settings=settings(self._options.term.name),
                standalone=True,
                clusterwide=not self._options.namespaces,
                namespaces=self._options.namespaces,
                stop_flag=self._stop,
                ready_flag=ready,
            )
        finally:
            serving_flag.cancel()

    async def _announce(self, ready: asyncio.Event) -> None:
        """Leads once every watch has begun; one that does not is for the probe to find."""
        await ready.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEGINNING_SECONDS):
                while self._health.watchers():
                    await asyncio.sleep(POLL_SECONDS)
        self._health.leading = True
