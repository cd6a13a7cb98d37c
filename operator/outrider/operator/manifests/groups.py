"""The LeaderWorkerSet of a role whose replicas are groups of pods, and how those find each other.

Leaves the number of groups to `workload_plan`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.process import (
    ENV_LEADER,
    ENV_NODE,
    ENV_NODES,
    ENV_STAGE,
    ENV_STAGES,
    RENDEZVOUS_PORT,
    STAGE_PORT,
)
from outrider.contract.settings import Role
from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import LEADER_WORKER_SET
from outrider.operator.manifests.child import (
    READ_ON_WORKLOADS,
    Object,
    child,
    queued,
)
from outrider.operator.manifests.rollout import Bounds
from outrider.operator.naming import (
    DIGEST_ANNOTATION,
    GROUP,
    REPLICAS_ANNOTATION,
    WORKER_GROUP,
    WORKER_INDEX,
    role_name,
)
from outrider.operator.observed.live_workloads import LiveWorkload
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.engine import Parallelism

OWN_NAME = "OUTRIDER_GROUP"
"""Variable with the number of a pod's group, which is part of host names."""


@dataclass(frozen=True, slots=True)
class GroupDiscovery:
    """Host names by which the pods of a group find each other."""

    hosts: tuple[str, ...]
    """Host names of a group's pods, in the order of their numbers; pod 0 leads."""
    stages: bool
    """True if each pod is a stage of a pipelined target."""

    @classmethod
    def of(cls, owner: Owner, role: Role, parallelism: Parallelism) -> "GroupDiscovery | None":
        """Return how the pods of a role's groups find each other; None: each is alone. A
        LeaderWorkerSet puts a variable of its own before all others, and its Service has its own
        name."""
        if parallelism.pods == 1:
            return None
        name = role_name(owner.name, role)
        service = f"{name}.{owner.namespace}.svc"
        others = (f"{name}-$({OWN_NAME})-{n}.{service}" for n in range(1, parallelism.pods))
        return cls(("$(LWS_LEADER_ADDRESS)", *others), parallelism.stages > 1)


def environment(discovery: GroupDiscovery) -> list[Object]:
    """Return the variables of each container; one may refer to those before it."""
    group, index = {"name": OWN_NAME, **_label(WORKER_GROUP)}, _label(WORKER_INDEX)
    if discovery.stages:
        stages = ",".join(f"{host}:{STAGE_PORT}" for host in discovery.hosts)
        return [{"name": ENV_STAGE, **index}, group, {"name": ENV_STAGES, "value": stages}]
    nodes = {"name": ENV_NODES, "value": str(len(discovery.hosts))}
    leader = {"name": ENV_LEADER, "value": discovery.hosts[0]}
    return [nodes, {"name": ENV_NODE, **index}, leader]


def container_port(discovery: GroupDiscovery) -> Object:
    """Return the port at which the pods of a group meet."""
    name, number = ("stage", STAGE_PORT) if discovery.stages else ("rendezvous", RENDEZVOUS_PORT)
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def leader_worker_set(
    owner: Owner,
    role: Role,
    nodes: int,
    template: Object,
    replicas: int | None,
    to: Bounds,
    surge: int = 0,
) -> Object:
    """Return all groups of a role, which restart as a whole; `replicas` None: another owner sets
    the number. Its only strategy is RollingUpdate: Recreate takes all groups at once.

    `surge`: groups beside those that are wanted, while it rolls. Its controller (0.8) would add
    them itself, but none to a single group, for which it then waits for ever, and would end one
    while the last that is wanted is not new (kubernetes-sigs/lws pull request 779). It hands
    `maxUnavailable` on to a StatefulSet, where API servers may refuse 0 (its issue 776).
    """
    missing = to.unavailable if replicas is None else to.unavailable + to.surge
    rolling = {"maxUnavailable": max(1, missing), "maxSurge": 0}
    spec: Object = {
        "leaderWorkerTemplate": {
            "size": nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": template,
        },
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling},
        "startupPolicy": "LeaderCreated",
    }
    if replicas is not None:
        spec["replicas"] = replicas + surge
    made = child(LEADER_WORKER_SET, owner, role_name(owner.name, role), role, spec=spec)
    if replicas is not None and surge:
        made = noted(made, replicas)
    return queued(made, template)


def as_it_is(workload: LiveWorkload, replicas: int) -> Object:
    """Return a live object of an older description, which cannot be built any more, with `replicas`
    replaced."""
    live, meta = workload.live, workload.live["metadata"]
    spec: dict[str, Any] = {**live["spec"], "replicas": replicas}
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}
    kept["annotations"] = {**_ours(meta.get("annotations", {})), DIGEST_ANNOTATION: digest(spec)}
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": kept, "spec": spec}


def noted(workload: Object, replicas: int) -> Object:
    """Return a workload with an annotation that says how many replicas are wanted."""
    annotations = workload["metadata"]["annotations"]
    annotations[REPLICAS_ANNOTATION] = str(replicas)
    annotations[DIGEST_ANNOTATION] = digest([annotations[DIGEST_ANNOTATION], replicas])
    return workload


def _ours(notes: Mapping[str, str]) -> dict[str, str]:
    own = (f"{GROUP}/", *READ_ON_WORKLOADS)
    found = {key: notes[key] for key in notes if key.startswith(own)}
    found.pop(REPLICAS_ANNOTATION, None)
    return found


def _label(name: str) -> Object:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}}
