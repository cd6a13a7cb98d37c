"""One service in a small cluster with an operator that may stop after any of its actions."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.certificates.authority import Authorities
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.interfaces import ClaimReader, Object
from outrider.operator.cluster.kinds import LEADER_WORKER_SET, POD_MONITOR, ObjectKind, ServiceKey
from outrider.operator.manifests.desired import Platform
from outrider.operator.naming import FIELD_MANAGER, MEMORY_KEY, POLICY_KEY, RESTARTED_ANNOTATION
from outrider.operator.observed.pods import Pod
from outrider.operator.reconcile import Reconciler
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.work_queue import Retry
from outrider.operator.workers.poll import PollAnswer, PollQuestion
from tests.unit.operator.small_cluster import SmallCluster
from tests.unit.operator.small_controllers import CONTROLLERS_OWN, Controllers, SmallWorkers

KEY = ("default", "chat")
START = 1_700_000_000.0
SPEC = """
target: {model: {uri: "hf://org/large"}, resources: {requests: {cpu: "0.5", memory: 2048Mi}}}
draft: {model: {uri: "hf://org/small"}, resources: {requests: {memory: 1Gi}}}
"""


LOOPS_OWN = ("version", "drafts", "speculate", "max_rows", "sources")
"""What the control loop says in a policy; its own tests say what it is."""


class Killed(BaseException):
    """The operator's process is gone."""


class Breaking:
    """A cluster writer and workers that raise `Killed` after so many actions."""

    def __init__(self, cluster: SmallCluster, workers: SmallWorkers, left: int | None) -> None:
        self._cluster, self._workers, self._left = cluster, workers, left

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        return await self._cluster.get(kind, namespace, name)

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        self._may()
        answer = await self._cluster.apply(wanted, manager)
        self._did()
        return answer

    async def dry_run(self, wanted: Mapping[str, Any]) -> None:
        await self._cluster.dry_run(wanted)

    async def warnings(self, wanted: Mapping[str, Any]) -> list[str]:
        return await self._cluster.warnings(wanted)

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        self._may()
        answer = await self._cluster.apply_status(wanted)
        self._did()
        return answer

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        self._may()
        await self._cluster.delete(kind, namespace, name, uid)
        self._did()

    async def event(
        self, about: Mapping[str, Any], *, warning: bool, reason: str, note: str
    ) -> None:
        self._may()
        await self._cluster.event(about, warning=warning, reason=reason, note=note)
        self._did()

    def is_asked(self, service: ServiceKey) -> bool:
        return self._workers.is_asked(service)

    async def ask(self, service: ServiceKey, question: PollQuestion) -> None:
        await self._workers.ask(service, question)

    def reports(self, service: ServiceKey) -> PollAnswer | None:
        return self._workers.reports(service)

    async def forget_service(self, service: ServiceKey) -> None:
        await self._workers.forget_service(service)

    def push(
        self,
        pod: Pod,
        policy: PolicySettings,
        on_result: Callable[[State | ClientError], None],
    ) -> None:
        self._may()
        self._workers.push(pod, policy, on_result)
        self._did()

    def drain(self, pod: Pod, incarnation: int, seconds: float) -> None:
        self._may()
        self._workers.drain(pod, incarnation, seconds)
        self._did()

    async def forget(self, gone: Iterable[str]) -> None:
        await self._workers.forget(gone)

    def _may(self) -> None:
        """Raise `Killed` if the process has died in another action."""
        if self._left is not None and self._left < 0:
            raise Killed

    def _did(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed


class OneService:
    """The service `chat`, its cluster, its workers, and its operator."""

    def __init__(
        self,
        spec: Mapping[str, Any] | str = SPEC,
        kinds: Iterable[ObjectKind] = (POD_MONITOR, LEADER_WORKER_SET),
        authorities: Callable[[], Authorities] | None = None,
        claims: ClaimReader | None = None,
    ) -> None:
        """`kinds` are those that not every cluster serves and this one does; `authorities` sign
        certificates of workers, None: there are none; `claims` None: no other operator is."""
        self.now = START
        self.cluster = SmallCluster()
        self.controllers = Controllers(self.cluster)
        self.workers = SmallWorkers(self.clock)
        self.metrics = OperatorMetrics()
        self.retries: list[Retry] = []
        """What passes said that are to be tried again."""
        self.optional_kinds = frozenset(kinds)
        self.monitor_labels: Mapping[str, str] = {}
        self.authorities = authorities
        self.issuer: Issuer | None = None
        self.claims = claims
        self.image = "worker:1"
        self.restarts = 0
        body = yaml.safe_load(spec) if isinstance(spec, str) else copy.deepcopy(dict(spec))
        kind = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
        meta = {"name": KEY[1], "namespace": KEY[0]}
        self.cluster.put({**kind, "metadata": meta, "spec": body})
        self.restart()

    def restart(self, dies_after: int | None = None) -> None:
        """A new process operates, and ends after so many actions; None: it lives on."""
        writer = Breaking(self.cluster, self.workers, dies_after)
        labels = self.monitor_labels
        platform = Platform(
            image=self.image,
            kinds=self.optional_kinds,
            monitor_labels=labels,
            authorities=self.authorities,
            issuer=self.issuer,
        )
        self.reconciler = Reconciler(
            writer, self.cluster, writer, self.metrics, platform, self.clock, self.claims
        )

    def clock(self) -> float:
        """The time, in seconds."""
        return self.now

    def copy(self) -> "OneService":
        """Return another that is where this one is, operated by a new process."""
        begun_anew = {id(self.metrics): OperatorMetrics(), id(self.reconciler): None}
        other = copy.deepcopy(self, begun_anew)
        other.restart()
        return other

    def pass_(self, lagging: bool = False) -> bool:
        """One pass; False: the process died in it."""
        if not lagging:
            self.cluster.tell()
        try:
            asyncio.run(self._pass())
        except Killed:
            return False
        return True

    async def _pass(self) -> None:
        await self.reconciler.prepare(KEY)
        try:
            await self.reconciler.reconcile(KEY)
        except Retry as retry:
            self.retries.append(retry)

    def rest(self, passes: int = 20, seconds: float = 16.0) -> None:
        """Run passes and controllers alternately, until nothing should be left to do."""
        for _ in range(passes):
            self.pass_()
            self.controllers.settle()
            self.now += seconds

    def writes_at_rest(self) -> list[str]:
        """Return the writes where nothing has changed, and nothing is decoded: gain is stored."""
        self.cluster.writes.clear()
        self.workers.works = False
        self.rest(3)
        self.workers.works = True
        return self.cluster.writes

    def edit(self, change: Callable[[Object], None]) -> None:
        """The user changes the spec."""
        self.cluster.edit(("SpeculativeService", *KEY), lambda body: change(body["spec"]))

    def replace_pods(self) -> None:
        """The user has the pods replaced, by the command that the status names."""
        self.restarts += 1

        given = {RESTARTED_ANNOTATION: str(self.restarts)}
        self.cluster.edit(
            ("SpeculativeService", *KEY), lambda body: body["metadata"].update(annotations=given)
        )

    @property
    def raw(self) -> Object:
        """The service's object."""
        return self.cluster.stored["SpeculativeService", *KEY].body

    @property
    def policy(self) -> Object:
        """The policy that is stored."""
        stored = self.cluster.stored["ConfigMap", KEY[0], f"{KEY[1]}-intent"].body
        told: Object = json.loads(stored["data"][POLICY_KEY])
        return told

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        every: list[Object] = self.raw["status"]["conditions"]
        found = next(c for c in every if c["type"] == kind)
        return found["status"], found["reason"]

    def outcome(self) -> dict[tuple[str, str], Any]:
        """All children without what differs from run to run: uids, versions, times."""
        return {
            (kind, name): _lasting(stored.body)
            for (kind, _, name), stored in sorted(self.cluster.stored.items())
            if kind not in (*CONTROLLERS_OWN, "SpeculativeService")
        }


def _lasting(body: Object) -> Object:
    metadata = {k: body["metadata"].get(k) for k in ("labels", "name")}
    rest = {k: v for k, v in body.items() if k not in ("metadata", "status")}
    data = rest.get("data", {})
    if MEMORY_KEY in data:
        policy = json.loads(data[POLICY_KEY])
        rest["data"] = {k: v for k, v in policy.items() if k not in LOOPS_OWN}
    return {"metadata": metadata, **rest}
