"""Plays the controllers and workers of a small cluster: Deployments get pods, pods answer.

At once and completely, unless a test holds pods back. Nothing of it is the operator's.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from outrider.client.errors import ClientError
from outrider.client.state import Counters, Link, LinkState, State
from outrider.contract import metrics
from outrider.contract.settings import PolicySettings, Role
from outrider.operator.control.exposition import NEEDED
from outrider.operator.fleet import Report
from outrider.operator.naming import ROLE_LABEL
from outrider.operator.observed import Pod
from tests.unit.operator.small_cluster import SmallCluster


class Controllers:
    """Deployments and garbage collection."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self._count = 0
        self.ready: Callable[[str], bool] = lambda role: True
        """Whether a role's pods get ready."""

    def settle(self) -> None:
        """Everything is as the Deployments say."""
        uids = {s.body["metadata"]["uid"] for s in self._cluster.stored.values()}
        for key, stored in list(self._cluster.stored.items()):
            owners = stored.body["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._cluster.remove(key)
        deployments = self._cluster.of("Deployment")
        for deployment in deployments:
            self._pods(deployment)
        names = {d["metadata"]["name"] for d in deployments}
        for pod in self._cluster.of("Pod"):
            if pod["metadata"]["name"].rpartition("-")[0] not in names:
                self._cluster.remove(("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _pods(self, deployment: dict[str, Any]) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        labels, prefix = spec["template"]["metadata"]["labels"], meta["name"] + "-"
        pods = [p for p in self._cluster.of("Pod") if p["metadata"]["name"].startswith(prefix)]
        kept = [p for p in pods if p["metadata"]["labels"] == labels][: spec["replicas"]]
        for pod in pods:
            if pod not in kept:
                self._cluster.remove(("Pod", meta["namespace"], pod["metadata"]["name"]))
        while len(kept) < spec["replicas"]:
            kept.append(self._pod(meta, spec["template"]))
        ready = self.ready(labels[ROLE_LABEL])
        for pod in kept:
            words = "True" if ready else "False"
            conditions = [{"type": "Ready", "status": words}]
            address = f"10.1.0.{pod['metadata']['name'].rpartition('-')[2]}"
            self._cluster.put_status(pod, {"podIP": address, "conditions": conditions})
        number = spec["replicas"]
        status = {"observedGeneration": meta["generation"], "replicas": number}
        available = number if ready else 0
        status |= {"updatedReplicas": number, "availableReplicas": available}
        self._cluster.put_status(deployment, {**status, "readyReplicas": available})

    def _pod(self, meta: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
        self._count += 1
        labels = template["metadata"]
        name = {"name": f"{meta['name']}-{self._count}", "namespace": meta["namespace"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**copy.deepcopy(labels), **name}}
        return self._cluster.put(pod, "controller")


class SmallWorkers:
    """Workers that answer as they are told; links to drafts that they are told of are up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.policies: dict[str, PolicySettings] = {}
        """By pod's uid."""
        self.pushed: list[int] = []
        """Versions, in the order in which they came."""
        self.forgotten: set[str] = set()
        self.silent = False
        """Whether nobody answers."""
        self.links_up = 1.0
        """Share of a target's links that are up."""
        self.link_detail = ""
        """Why the others are refused; empty: they are not."""
        self.gain = 1.5
        """Of every window in which there was drafting."""

    async def reports(self, pods: Iterable[Pod]) -> Mapping[str, Report]:
        return {pod.uid: self._report(pod) for pod in pods if pod.running}

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        if self.silent:
            raise ClientError("no answer", grpc.StatusCode.UNAVAILABLE)
        self.pushed.append(policy.version)
        if policy.version > self._policy(pod).version:
            self.policies[pod.uid] = policy
        return self._state(pod)

    async def forget(self, gone: Iterable[str]) -> None:
        self.forgotten.update(gone)

    def _report(self, pod: Pod) -> Report:
        if self.silent:
            return Report(self._clock(), None, None, "no answer")
        return Report(self._clock(), self._state(pod), self._metrics(pod))

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
                revision="r",
                incarnation=1,
            )
            for number, address in enumerate(policy.drafts)
        )
        return State(
            role=pod.role,
            model="m",
            revision="r",
            incarnation=1,
            ready=True,
            draining=False,
            policy=policy,
            links=links,
            running=0,
            waiting=0,
            counters=Counters(),
            dtype="fp32",
            threads=1,
            step_seconds={},
        )

    def _metrics(self, pod: Pod) -> str:
        """Counters grow with time, 100 passes a second, and have no end."""
        drafting = pod.role is Role.TARGET and self._policy(pod).speculate
        seconds = self._clock() % 1_000_000
        values = {
            metrics.GAIN_PLAIN_SECONDS.name: seconds * self.gain,
            metrics.GAIN_SPENT_SECONDS.name: seconds,
            metrics.VERIFY_PASSES.name: seconds * 100,
            metrics.NUM_DRAFTS.name: seconds * 100 if drafting else 0,
            metrics.KV_CACHE_USAGE.name: 0.1,
            metrics.DRAFT_SESSIONS.name: 0,
            metrics.NUM_REQUESTS_WAITING.name: 0,
        }
        lines = [
            f'{name}{{role="{pod.role}"}} {values.get(name, 1)}'
            for name in sorted(NEEDED - {metrics.DRAFTING_STATE.name, metrics.LINK_STATE.name})
        ]
        lines.append(f'{metrics.DRAFTING_STATE.name}{{role="{pod.role}",state="on"}} 1')
        return "\n".join(lines) + "\n"
