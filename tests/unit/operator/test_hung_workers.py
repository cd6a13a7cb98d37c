"""Services whose pods hang delay no other, in whatever order things happen."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.manifests.desired import Platform
from outrider.operator.observed.pods import Pod
from outrider.operator.reconcile import Reconciler
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.work_queue import MAX_AT_ONCE, WorkQueue
from outrider.operator.workers.background import BackgroundWorkers
from outrider.operator.workers.client import WorkerClients
from outrider.operator.workers.poll import PodReport
from tests.unit.operator.one_service import SPEC
from tests.unit.operator.small_cluster import SmallCluster
from tests.unit.operator.small_controllers import Controllers, SmallWorkers

NAMESPACE = "default"
HUNG = [f"hung-{number:02}" for number in range(2 * MAX_AT_ONCE)]
HEALTHY = ["well-00", "well-01"]
NOW = 1_700_000_000.0


class HangingClients(WorkerClients):
    """Clients of small workers; those of some services take connections and never answer."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = SmallWorkers(lambda: NOW)
        self.hanging = 0
        """Calls that have hung."""
        self.go = asyncio.Event()
        """Lets one of them end, without an answer."""

    async def reports(self, pods: Iterable[Pod]) -> Mapping[str, PodReport]:
        asked = list(pods)
        await self._hang_for(asked)
        self._workers.silent = any(pod.name.startswith("hung") for pod in asked)
        return {pod.uid: self._workers.report(pod) for pod in asked}

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        await self._hang_for([pod])
        return self._workers.take(pod, policy)

    async def _hang_for(self, pods: Iterable[Pod]) -> None:
        if any(pod.name.startswith("hung") for pod in pods):
            self.hanging += 1
            await self.go.wait()
            self.go.clear()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def described(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "SpeculativeService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": yaml.safe_load(SPEC),
    }


class Fleet:
    """All services, of one operator."""

    def __init__(self, workers: BackgroundWorkers) -> None:
        self.now = NOW
        self.cluster = SmallCluster()
        self._controllers = Controllers(self.cluster)
        platform = Platform(image="worker:1")
        self.reconciler = Reconciler(
            self.cluster, self.cluster, workers, OperatorMetrics(), platform, lambda: self.now
        )
        self.queue = WorkQueue(self.reconciler.reconcile, prepare=self.reconciler.prepare)

    async def make(self) -> None:
        """Make all children and all pods; no worker has been asked."""
        for name in (*HUNG, *HEALTHY):
            self.cluster.put(described(name))
        self.cluster.tell()
        for name in (*HUNG, *HEALTHY):
            await self.reconciler.reconcile((NAMESPACE, name))
        self._controllers.settle()
        self.cluster.tell()

    def enqueue(self, names: Iterable[str]) -> None:
        for name in names:
            self.queue.enqueue((NAMESPACE, name))

    def is_seen(self, name: str) -> bool:
        """True if the newest description of a service has been acted on."""
        raw = self.cluster.stored["SpeculativeService", NAMESPACE, name].body
        return bool(raw["status"]["observedGeneration"] == raw["metadata"]["generation"])

    def reason(self, name: str, kind: str) -> str:
        """Return the reason of a service's condition."""
        raw = self.cluster.stored["SpeculativeService", NAMESPACE, name].body
        (found,) = (c for c in raw["status"]["conditions"] if c["type"] == kind)
        return str(found["reason"])

    def edit(self, name: str) -> None:
        key = ("SpeculativeService", NAMESPACE, name)
        self.cluster.edit(key, lambda body: body["spec"].update(speculation={"maxRows": 4}))
        self.cluster.tell()
        self.enqueue([name])


def test_an_edit_of_a_healthy_service_waits_for_no_pod_that_hangs() -> None:
    async def scene() -> None:
        async with HangingClients() as clients:
            fleet: Fleet | None = None
            workers = BackgroundWorkers(clients, lambda key: fleet and fleet.queue.enqueue(key))
            async with workers:
                fleet = Fleet(workers)
                await fleet.make()
                fleet.enqueue(HUNG)
                await until(lambda: clients.hanging == len(HUNG))
                fleet.edit(HEALTHY[0])
                await until(lambda: fleet.is_seen(HEALTHY[0]))
                fleet.edit(HUNG[0])
                await until(lambda: fleet.is_seen(HUNG[0]))
                assert clients.hanging == len(HUNG), "none has answered, and none was asked again"
                await fleet.queue.close()

    asyncio.run(scene())


def test_an_answer_that_comes_after_the_next_poll_was_due_is_taken() -> None:
    async def scene() -> None:
        async with HangingClients() as clients:
            fleet: Fleet | None = None
            workers = BackgroundWorkers(clients, lambda key: fleet and fleet.queue.enqueue(key))
            async with workers:
                fleet = Fleet(workers)
                await fleet.make()
                fleet.enqueue(HUNG[:1])
                await until(lambda: clients.hanging == 1)
                fleet.now += 60
                clients.go.set()
                await until(lambda: fleet.reason(HUNG[0], "MetricsAvailable") == "MetricsMissing")
                await fleet.queue.close()

    asyncio.run(scene())
