"""Plays the controllers and workers of a small cluster: what wants pods gets them, pods answer.

At once and completely, unless a test holds pods back. Nothing of it is the operator's.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc

from outrider.client.errors import ClientError
from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import INSIDE, Link, LinkState, State
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.cluster.pod_controllers import controller_of
from outrider.operator.naming import (
    GROUP_SIZE,
    REVISION_LABEL,
    ROLE_LABEL,
    WORKER_GROUP,
    WORKER_INDEX,
)
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.poll import PodReport, PollAnswer, PollQuestion
from tests.unit.operator.small_cluster import SmallCluster, copied

CONTROLLERS_OWN = ("Pod", "ReplicaSet", "StatefulSet")
"""Kinds of objects that are made here."""


class Controllers:
    """Deployments, LeaderWorkerSets and garbage collection."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self._count = 0
        self.ready: Callable[[str], bool] = lambda role: True
        """Whether a role's pods get ready."""
        self.idle: set[str] = set()
        """Names of Deployments and pods that a test looks after itself."""

    def settle(self) -> None:
        """Make pods and statuses as the objects say, and delete what has lost its owner."""
        self._collect()
        for deployment in self._cluster.of("Deployment"):
            if deployment["metadata"]["name"] not in self.idle:
                self._keep(deployment, [{}] * deployment["spec"]["replicas"])
        for whole in self._cluster.of("LeaderWorkerSet"):
            numbers = range(whole["spec"]["leaderWorkerTemplate"]["size"])
            groups = range(whole["spec"]["replicas"])
            labels = [
                {WORKER_GROUP: str(group), WORKER_INDEX: str(n)}
                for group, n in itertools.product(groups, numbers)
            ]
            self._keep(whole, labels)

    def _collect(self) -> None:
        uids = {s.body["metadata"]["uid"] for s in self._cluster.stored.values()}
        for key, stored in list(self._cluster.stored.items()):
            owners = stored.body["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._cluster.remove(key)
                uids.discard(stored.body["metadata"]["uid"])
                return self._collect()

    def _keep(self, workload: dict[str, Any], numbers: Sequence[Mapping[str, str]]) -> None:
        """Keep the pods of an object: one for each set of labels beside those of its template."""
        meta, spec = workload["metadata"], workload["spec"]
        template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
        wanted = [{**template["metadata"]["labels"], **number} for number in numbers]
        for pod in self._pods(meta["uid"]):
            if pod["metadata"]["labels"] in wanted:
                wanted.remove(pod["metadata"]["labels"])
            else:
                self._cluster.remove(("Pod", meta["namespace"], pod["metadata"]["name"]))
        for labels in wanted:
            self._pod(workload, {**template["metadata"], "labels": labels}, _size(workload))
        self._report(workload, self.ready(template["metadata"]["labels"][ROLE_LABEL]))

    def _report(self, workload: dict[str, Any], ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        for pod in self._pods(workload["metadata"]["uid"]):
            address = f"10.1.0.{pod['metadata']['name'].rpartition('-')[2]}"
            self._cluster.put_status(pod, {"podIP": address, "conditions": conditions})
        number = workload["spec"]["replicas"]
        available = number if ready else 0
        status = {"replicas": number, "updatedReplicas": number, "readyReplicas": available}
        if workload["kind"] != "LeaderWorkerSet":  # its controller reports neither
            status["availableReplicas"] = available
            status["observedGeneration"] = workload["metadata"]["generation"]
        self._cluster.put_status(workload, status)

    def _pods(self, workload: str) -> list[dict[str, Any]]:
        """Return the pods that a workload keeps, through what controls them."""
        every = [stored.body for stored in self._cluster.stored.values()]
        kept = {workload}
        for _ in range(4):  # its StatefulSet, the leaders, theirs, the other pods
            found = [one for one in every if controller_of(one).get("uid") in kept]
            kept |= {one["metadata"]["uid"] for one in found}
        pods = (pod for pod in self._cluster.of("Pod") if pod["metadata"]["uid"] in kept)
        there = (
            pod for pod in pods if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")
        )
        return [pod for pod in there if pod["metadata"]["name"] not in self.idle]

    def _pod(
        self, workload: dict[str, Any], meta: Mapping[str, Any], notes: Mapping[str, str]
    ) -> None:
        self._count += 1
        meta = {**meta, "annotations": {**meta.get("annotations", {}), **notes}}
        own = {
            "name": f"{workload['metadata']['name']}-{self._count}",
            "namespace": workload["metadata"]["namespace"],
            "ownerReferences": [self._controller(workload, meta["labels"])],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**copied(meta), **own}}
        self._cluster.put(pod, "controller")

    def _controller(
        self, workload: dict[str, Any], labels: Mapping[str, str]
    ) -> dict[str, str | bool]:
        """Return the owner reference of a pod: what controls it is made where it is not there."""
        name, group = workload["metadata"]["name"], labels.get(WORKER_GROUP)
        if group is None:
            return self._owning("ReplicaSet", f"{name}-{labels[REVISION_LABEL]}", workload)
        if labels[WORKER_INDEX] == "0":
            return self._owning("StatefulSet", name, workload)
        leader = next(
            pod
            for pod in self._pods(workload["metadata"]["uid"])
            if pod["metadata"]["labels"].items() >= {WORKER_GROUP: group, WORKER_INDEX: "0"}.items()
        )
        return self._owning("StatefulSet", f"{name}-{group}", leader)

    def _owning(self, kind: str, name: str, owner: dict[str, Any]) -> dict[str, str | bool]:
        """Return a reference to an object that `owner` controls."""
        key = (kind, owner["metadata"]["namespace"], name)
        stored = self._cluster.stored.get(key)
        if stored is None or controller_of(stored.body)["uid"] != owner["metadata"]["uid"]:
            meta = {"namespace": key[1], "name": name, "ownerReferences": [reference(owner)]}
            self._cluster.put(
                {"apiVersion": "apps/v1", "kind": kind, "metadata": meta}, "controller"
            )
        return reference(self._cluster.stored[key].body)


def reference(owner: Mapping[str, Any]) -> dict[str, str | bool]:
    """Return the reference of what an object controls."""
    meta = owner["metadata"]
    named = {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {"apiVersion": owner["apiVersion"], **named, "controller": True}


def _size(workload: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation by which the pods of a LeaderWorkerSet's group keep their number."""
    whole = workload["spec"].get("leaderWorkerTemplate")
    return {} if whole is None else {GROUP_SIZE: str(whole["size"])}


class SmallWorkers:
    """Workers that answer as they are told; links to drafts that they are told of are up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reports: PollAnswer | None = None
        self.policies: dict[str, PolicySettings] = {}
        """By pod's uid."""
        self.asked: set[str] = set()
        """Uids of pods that were asked for their state."""
        self.pushed: list[int] = []
        """Versions, in the order in which they came."""
        self.drained: list[tuple[str, float]] = []
        """Names of pods that were told to finish, and within how many seconds."""
        self.forgotten: set[str] = set()
        self.forgotten_services: set[ServiceKey] = set()
        self.silent = False
        """True if no worker answers."""
        self.running: dict[str, int] = {}
        """Requests of pods, by name; of others none."""
        self.unacknowledged = False
        """True if no worker takes a policy, though all answer."""
        self.links_up = 1.0
        """Share of a target's links that are up."""
        self.transport = "grpc"
        """What carries them."""
        self.link_detail = ""
        """Why the others are refused; empty: they are not."""
        self.refused_draft = ""
        """Why the draft in a target's process is not used; empty: it is, or there is none."""
        self.gain = 1.5
        """Of every window in which there was drafting."""
        self.works = True
        """False while they decode nothing."""
        self._seconds = 0

    def is_asked(self, service: ServiceKey) -> bool:
        return False

    async def ask(self, service: ServiceKey, question: PollQuestion) -> None:
        found = {pod.uid: self.report(pod) for pod in question.pods}
        self.asked |= found.keys()
        self._reports = PollAnswer(question, found)

    def reports(self, service: ServiceKey) -> PollAnswer | None:
        taken, self._reports = self._reports, None
        return taken

    async def forget_service(self, service: ServiceKey) -> None:
        self.forgotten_services.add(service)

    def push(
        self,
        pod: Pod,
        policy: PolicySettings,
        on_result: Callable[[State | ClientError], None],
    ) -> None:
        if self.silent or self.unacknowledged:
            on_result(ClientError("no answer", grpc.StatusCode.UNAVAILABLE))
        else:
            on_result(self.take(pod, policy))

    def drain(self, pod: Pod, incarnation: int, seconds: float) -> None:
        self.drained.append((pod.name, seconds))

    def take(self, pod: Pod, policy: PolicySettings) -> State:
        """Take a newer policy; return the state afterwards."""
        self.pushed.append(policy.version)
        if policy.version > self._policy(pod).version:
            self.policies[pod.uid] = policy
        return self._state(pod)

    async def forget(self, gone: Iterable[str]) -> None:
        self.forgotten.update(gone)

    def report(self, pod: Pod) -> PodReport:
        if self.silent:
            return PodReport(self._clock(), None, "no answer")
        return PodReport(self._clock(), self._state(pod))

    def _policy(self, pod: Pod) -> PolicySettings:
        return self.policies.get(pod.uid, PolicySettings())

    def _state(self, pod: Pod) -> State:
        policy = self._policy(pod)
        up = round(len(policy.drafts) * self.links_up)
        down = LinkState.REFUSED if self.link_detail else LinkState.CONNECTING
        links = tuple(
            Link(
                address=address,
                state=LinkState.UP if number < up else down,
                detail=self.link_detail,
                transport=self.transport,
                revision="r",
                incarnation=1,
            )
            for number, address in enumerate(policy.drafts)
        )
        if self.refused_draft:
            links += (Link(INSIDE, LinkState.REFUSED, self.refused_draft),)
        return State(
            role=pod.role,
            model="m",
            revision="r",
            incarnation=1,
            ready=True,
            draining=any(pod.name == name for name, _ in self.drained),
            policy=policy,
            links=links,
            running=self.running.get(pod.name, 0),
            waiting=0,
            counters=self._counters(pod),
            dtype="fp32",
            threads=1,
            step_seconds={},
            drafting="on" if pod.role is Role.TARGET else "",
        )

    def _counters(self, pod: Pod) -> Counters:
        """Return counters that grow with time, 100 passes a second, while they work."""
        if self.works:
            self._seconds = int(self._clock() % 1_000_000)
        seconds = self._seconds
        drafting = pod.role is Role.TARGET and self._policy(pod).speculate
        drafted = seconds * 100 if drafting else 0
        return Counters(
            plain_seconds=seconds * self.gain,
            spent_seconds=seconds,
            passes=seconds * 100,
            drafted_passes=drafted,
            tokens=1,
            first_guesses=drafted,
            first_hits=drafted,
            kv_slots=10,
            kv_slots_used=1,
        )
