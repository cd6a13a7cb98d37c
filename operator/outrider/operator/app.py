"""The running operator: kopf's watches, the queue of passes, health and leadership.

Connects the parts; leaves the passes themselves to `reconcile`.
"""

import asyncio
import contextlib
import dataclasses
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import kopf

from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster import access
from outrider.operator.cluster.authority_store import AuthorityStore
from outrider.operator.cluster.claims import Claims
from outrider.operator.cluster.client import NOT_FOUND, Cluster, ClusterError
from outrider.operator.cluster.kinds import (
    CERTIFICATE,
    GUARDED,
    ISSUED,
    LEADER_WORKER_SET,
    OPTIONAL,
    SERVICE,
    ObjectKind,
    ServiceKey,
)
from outrider.operator.cluster.leadership import Term, lead
from outrider.operator.cluster.resync import resync
from outrider.operator.cluster.watch_handlers import Watches, settings
from outrider.operator.manifests.desired import Platform
from outrider.operator.manifests.pods import PodRules
from outrider.operator.reconcile import Reconciler
from outrider.operator.server import health as serving
from outrider.operator.server.health import HealthServer
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.spec.accelerators import Prices
from outrider.operator.work_queue import WorkQueue
from outrider.operator.workers.background import BackgroundWorkers
from outrider.operator.workers.caller import Caller, MountedCaller, OwnCaller
from outrider.operator.workers.client import WorkerClients

log = logging.getLogger(__name__)
LOST = 3
"""Exit status of a leader that lost its lease: its pod restarts as a follower."""
AGAIN_SECONDS = 3.0
"""Seconds between two attempts to begin while the API server is away, or has no such services."""
NO_DEFINITIONS = (
    "the cluster serves no SpeculativeServices: their CRDs are to be installed (crds.install=true)"
)
LOOK_SECONDS = 20.0
"""Seconds between two looks whether the cluster has come to serve LeaderWorkerSets."""
BEGINNING_SECONDS = 25.0
"""Longest time for kopf to list what it watches, which it does after it reports to be ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Options of the command line."""

    worker_image: str
    host: str
    port: int
    term: Term
    namespaces: tuple[str, ...] = ()
    """Empty: all."""
    own_namespace: str = ""
    """Namespace of the operator's pod; empty: the operator runs in no pod."""
    pods: PodRules = field(default_factory=PodRules)
    """What the cluster wants of all pods of workers."""
    certificates: bool = True
    """Whether workers know each other, and the operator, by certificates."""
    issuer: Issuer | None = None
    """Who of cert-manager's signs those; None: the operator does."""
    peer_folder: Path | None = None
    """Folder with the operator's own certificate, where an issuer signs it."""
    silence_seconds: float = serving.SILENCE_SECONDS
    """Longest time without an event from the API server."""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the PodMonitors of services."""
    gpu_prices: Prices = field(default_factory=dict)
    """Prices of GPUs for an hour; empty: all count alike."""

    @property
    def scope(self) -> tuple[str | None, ...]:
        """Namespaces that are watched; None: all."""
        return self.namespaces or (None,)

    @property
    def name(self) -> str:
        """Name of the operator, NAMESPACE/NAME: of all its processes, and whatever it watches;
        its Lease may move with the namespaces that are watched."""
        return f"{self.own_namespace or self.term.namespace}/{self.term.name}"

    @property
    def certified_by(self) -> tuple[ObjectKind, ...]:
        """The kinds of children in which certificates are, or are wished for."""
        if not self.certificates:
            return ()
        return GUARDED if self.issuer is None else ISSUED

    @property
    def hears_itself(self) -> bool:
        """True if the leader's own Lease is watched: then the watches are never silent."""
        return not self.namespaces or self.term.namespace in self.namespaces


async def run(options: OperatorOptions) -> int:
    """Serve until SIGTERM or SIGINT (returns 0) or until the lease is lost (returns 3)."""
    metrics = OperatorMetrics()
    health = HealthServer(metrics, options.silence_seconds)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = await serving.serve(health, options.host, options.port)
    try:
        async with await Cluster.connect(metrics.requests) as cluster:
            beginning = asyncio.ensure_future(_begin(cluster, options))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not beginning.done():
                beginning.cancel()
                await asyncio.gather(beginning, return_exceptions=True)
                return 0
            kinds = beginning.result()
            platform = Platform(
                image=options.worker_image,
                pods=options.pods,
                kinds=kinds,
                monitor_labels=options.monitor_labels,
                gpu_prices=options.gpu_prices,
                namespace=options.own_namespace,
                issuer=options.issuer,
            )
            operator = Operator(options, platform, cluster, metrics, health, stop)
            leading = asyncio.ensure_future(lead(cluster, options.term, operator.run))
            looking = asyncio.ensure_future(_look_for_sets(cluster, kinds, stop))
            await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not operator.began:
                leading.cancel()
            await asyncio.wait({leading})
            stopping.cancel()
            looking.cancel()
            return 0 if leading.cancelled() or leading.result() else LOST
    finally:
        await runner.cleanup()


async def _begin(cluster: Cluster, options: OperatorOptions) -> frozenset[ObjectKind]:
    """Return the optional kinds that the cluster serves, once its API server answers and has the
    chart's definitions; raise `ClusterError` and `Forbidden` for what no waiting mends.

    A process that ended because the server is away would be started again after longer and longer
    times, up to five minutes after the server is back.
    """
    while True:
        try:
            if not await cluster.serves(SERVICE):
                log.warning("%s, and asked again soon", NO_DEFINITIONS)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            served = [kind for kind in OPTIONAL if await cluster.serves(kind)]
            kinds = frozenset([*served, *await _certified_by(cluster, options)])
            await access.check(cluster, access.needs(options.scope, options.term, kinds))
            return kinds
        except ClusterError as error:
            if not error.transient:
                raise
            log.warning("the API server is away, and asked again soon: %s", error)
            await asyncio.sleep(max(AGAIN_SECONDS, error.retry_after))


async def _look_for_sets(
    cluster: Cluster, kinds: frozenset[ObjectKind], stop: asyncio.Event
) -> None:
    """End the process once the cluster serves LeaderWorkerSets and did not before: the one that its
    pod starts next watches them."""
    while LEADER_WORKER_SET not in kinds:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if await cluster.serves(LEADER_WORKER_SET):
                log.warning("the cluster serves LeaderWorkerSet now: this process ends, to use it")
                return stop.set()
        except ClusterError as error:
            log.warning("nobody knows whether the cluster serves LeaderWorkerSet: %s", error)


async def _certified_by(cluster: Cluster, options: OperatorOptions) -> tuple[ObjectKind, ...]:
    """Return `certified_by`; raise `ClusterError` where the cluster serves no Certificates."""
    kinds = options.certified_by
    if CERTIFICATE in kinds and not await cluster.serves(CERTIFICATE):
        words = "the cluster does not serve this kind; cert-manager has to be installed first"
        raise ClusterError(f"{CERTIFICATE.plural}.{CERTIFICATE.group}", NOT_FOUND, words)
    return kinds


class Operator:
    """The work of the leader."""

    def __init__(
        self,
        options: OperatorOptions,
        platform: Platform,
        cluster: Cluster,
        metrics: OperatorMetrics,
        health: HealthServer,
        stop: asyncio.Event,
    ) -> None:
        self._options = options
        term = options.term
        self._store = AuthorityStore(cluster, term.namespace, f"{term.name}-authorities")
        signs = options.certificates and options.issuer is None
        authorities = self._store.current if signs else None
        self._platform = dataclasses.replace(platform, authorities=authorities)
        self._cluster = cluster
        self._claims = Claims(cluster, options.name)
        self._metrics = metrics
        self._health = health
        self._stop = stop
        self.began = False

    async def run(self) -> None:
        """Watch and reconcile until told to stop."""
        self.began = True
        async with self._authorities(), self._passes() as watches:
            await self._watch(watches)

    @contextlib.asynccontextmanager
    async def _authorities(self) -> AsyncIterator[None]:
        """Have the authorities of certificates, and renew them meanwhile."""
        if self._platform.authorities is None:
            yield
            return
        await self._store.load()
        keeping = asyncio.ensure_future(self._store.keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _passes(self) -> AsyncIterator[Watches]:
        platform = self._platform
        watches = Watches(lambda key: queue.enqueue(key), platform.kinds)
        async with (
            WorkerClients(self._caller()) as clients,
            BackgroundWorkers(clients, lambda key: queue.enqueue(key)) as workers,
        ):
            reconciler = Reconciler(
                self._cluster, watches, workers, self._metrics, platform, claims=self._claims
            )
            queue = WorkQueue(
                reconciler.reconcile,
                large=reconciler.new,
                on_wait=self._metrics.queue.observe,
                prepare=reconciler.prepare,
            )
            full = asyncio.ensure_future(
                resync(self._cluster, watches, queue, self._options.scope, self._health.distrust)
            )
            keeping = asyncio.ensure_future(self._keep_claims(watches, queue))
            if self._options.hears_itself:
                self._health.heard = lambda: watches.last_event
            try:
                yield watches
            finally:
                self._health.leading = False
                for task in (full, keeping):
                    task.cancel()
                await asyncio.gather(full, keeping, return_exceptions=True)
                await queue.close()

    async def _keep_claims(self, watches: Watches, queue: WorkQueue[ServiceKey]) -> None:
        """Keep the claims of namespaces that have services; a change is a reason for passes."""

        def wake(namespace: str) -> None:
            for key in watches.services():
                if key[0] == namespace:
                    queue.enqueue(key)

        await self._claims.keep(lambda: {key[0] for key in watches.services()}, wake)

    def _caller(self) -> Caller | None:
        """Return what has the operator's certificate; None: workers want none. Raises `OSError`."""
        if self._options.peer_folder is not None:
            return MountedCaller(self._options.peer_folder)
        authorities = self._platform.authorities
        return None if authorities is None else OwnCaller(authorities)

    async def _watch(self, watches: Watches) -> None:
        registry = kopf.OperatorRegistry()
        watches.register(registry)
        ready = asyncio.Event()
        serving_flag = asyncio.ensure_future(self._announce(ready, watches))
        try:
            await kopf.operator(
                registry=registry,
                # kopf's own detection fails for a user without an entry in /etc/passwd.
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

    async def _announce(self, ready: asyncio.Event, watches: Watches) -> None:
        """Mark the process as leading once every watch has begun; a watch that does not begin, or
        ends, fails the liveness probe."""
        await ready.wait()
        self._health.watchers = lambda: serving.NOT_BEGUN
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEGINNING_SECONDS):
                await watches.began.wait()
        self._health.leading = True
        await watches.began.wait()
        watching = serving.watching_tasks()
        self._health.watchers = lambda: serving.ended(watching)
