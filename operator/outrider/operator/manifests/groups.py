"""Objects of replicas with several pods: a StatefulSet each, or one LeaderWorkerSet for a role.

And the Service by which their pods find each other, which also records how many groups are wanted.
Leaves the number of groups, and which of them go, to `rollout`.
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
from outrider.operator.cluster.kinds import LEADER_WORKER_SET, NETWORK_SERVICE, STATEFUL_SET
from outrider.operator.manifests.carriers import Carrier, Record
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.manifests.queues import READ_ON_WORKLOADS, queued
from outrider.operator.manifests.rollout import Bounds
from outrider.operator.naming import (
    GROUP_LABEL,
    KIND_ANNOTATION,
    POD_INDEX,
    PROGRESS_ANNOTATION,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    SERVED_ANNOTATION,
    WORKER_GROUP,
    WORKER_INDEX,
    nodes_name,
    role_name,
    selector,
)
from outrider.operator.spec import Parallelism

OWN_NAME = "OUTRIDER_GROUP"
"""Variable with the name of a pod's group, or with its number in a LeaderWorkerSet: part of host
names."""
OURS = "outrider.dev/"


@dataclass(frozen=True, slots=True)
class GroupDiscovery:
    """Variables by which the pods of a group find each other, the same for every group."""

    index: str
    """Label that numbers them; pod 0 leads."""
    group: str
    """Label whose value is part of their host names."""
    hosts: tuple[str, ...]
    """Host names of a group's pods, in the order of their numbers."""
    stages: bool
    """True if each pod is a stage of a pipelined target."""


def by_stateful_set(owner: Owner, role: Role, parallelism: Parallelism) -> GroupDiscovery:
    """Return how pods of groups that have a StatefulSet each find each other."""
    service = f"{nodes_name(owner.name, role)}.{owner.namespace}.svc"
    hosts = tuple(f"$({OWN_NAME})-{n}.{service}" for n in range(parallelism.pods))
    return GroupDiscovery(POD_INDEX, GROUP_LABEL, hosts, parallelism.stages > 1)


def by_leader_worker_set(owner: Owner, role: Role, parallelism: Parallelism) -> GroupDiscovery:
    """Return how pods of a LeaderWorkerSet find each other: it puts a variable of its own before
    all others, and its Service has its own name."""
    name = role_name(owner.name, role)
    service = f"{name}.{owner.namespace}.svc"
    others = (f"{name}-$({OWN_NAME})-{n}.{service}" for n in range(1, parallelism.pods))
    hosts = ("$(LWS_LEADER_ADDRESS)", *others)
    return GroupDiscovery(WORKER_INDEX, WORKER_GROUP, hosts, parallelism.stages > 1)


def environment(discovery: GroupDiscovery) -> list[Object]:
    """Return the variables of each container; one may refer to those before it."""
    group, index = {"name": OWN_NAME, **_label(discovery.group)}, _label(discovery.index)
    if discovery.stages:
        stages = ",".join(f"{host}:{STAGE_PORT}" for host in discovery.hosts)
        return [{"name": ENV_STAGE, **index}, group, {"name": ENV_STAGES, "value": stages}]
    nodes = {"name": ENV_NODES, "value": str(len(discovery.hosts))}
    leader = {"name": ENV_LEADER, "value": discovery.hosts[0]}
    return [nodes, {"name": ENV_NODE, **index}, group, leader]


def container_port(discovery: GroupDiscovery) -> Object:
    """Return the port at which the pods of a group meet."""
    name, number = _port(discovery.stages)
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _port(stages: bool) -> tuple[str, int]:
    return ("stage", STAGE_PORT) if stages else ("rendezvous", RENDEZVOUS_PORT)


def nodes_service(owner: Owner, role: Role, record: Record, stages: bool) -> Object:
    """Return the Service that gives every pod of a role's groups a name, before it is ready;
    `stages`: they are stages of pipelined targets."""
    name, (port_name, number) = nodes_name(owner.name, role), _port(stages)
    port = {"name": port_name, "port": number, "targetPort": number, "protocol": "TCP"}
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(owner.name, role),
        "ports": [port],
    }
    made = child(NETWORK_SERVICE, owner, name, role, spec=spec)
    made["metadata"]["annotations"] |= {
        REPLICAS_ANNOTATION: str(record.replicas),
        KIND_ANNOTATION: record.kind,
        REVISION_LABEL: record.revision,
        PROGRESS_ANNOTATION: str(record.progress),
    }
    return made


def stateful_set(
    owner: Owner, role: Role, name: str, nodes: int, template: Object, served: bool
) -> Object:
    """Return one group; its pods start together and never change. `served`: all were ready once."""
    meta = template["metadata"]
    own = {**meta, "labels": {**meta["labels"], GROUP_LABEL: name}}
    spec: Object = {
        "serviceName": nodes_name(owner.name, role),
        "replicas": nodes,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": {**selector(owner.name, role), GROUP_LABEL: name}},
        "template": {**template, "metadata": own},
    }
    made = child(STATEFUL_SET, owner, name, role, spec=spec)
    made["metadata"]["labels"][REVISION_LABEL] = meta["labels"][REVISION_LABEL]
    if served:
        made["metadata"]["annotations"][SERVED_ANNOTATION] = "true"
    return queued(made, template)


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
    if surge:
        made["metadata"]["annotations"][REPLICAS_ANNOTATION] = str(replicas)
    return queued(made, template)


def as_it_is(carrier: Carrier, replicas: int) -> Object:
    """Return a live object of an older description, which cannot be built any more, with `replicas`
    replaced; a StatefulSet keeps the number of its pods."""
    live, meta = carrier.live, carrier.live["metadata"]
    spec: dict[str, Any] = dict(live["spec"])
    if carrier.kind != STATEFUL_SET.name:
        spec["replicas"] = replicas
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}
    kept["annotations"] = _ours(meta.get("annotations", {}))
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": kept, "spec": spec}


def _ours(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: notes[key] for key in notes if key.startswith((OURS, *READ_ON_WORKLOADS))}


def _label(name: str) -> Object:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}}
