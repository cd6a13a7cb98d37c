"""Replicas of several pods: a StatefulSet each, or one LeaderWorkerSet for all of a role.

And the Service by which their pods find each other, which says how many groups are wanted too. How
many there are now, and which of them go, is not decided here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.group import LEADER, NODE, NODES
from outrider.contract.ports import RENDEZVOUS
from outrider.contract.settings import Role
from outrider.operator.carriers import Carrier, Record
from outrider.operator.kinds import LEADER_WORKER_SET, NETWORK_SERVICE, STATEFUL_SET
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import (
    GROUP_LABEL,
    KIND_ANNOTATION,
    POD_INDEX,
    PROGRESS_ANNOTATION,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    SERVED_ANNOTATION,
    WORKER_INDEX,
    nodes_name,
    role_name,
    selector,
)
from outrider.operator.rollout import Bounds

OWN_NAME = "OUTRIDER_GROUP"
"""Variable with the name of a pod's group, of which the leader's is made."""
RENDEZVOUS_PORT = {"name": "rendezvous", "containerPort": RENDEZVOUS, "protocol": "TCP"}
OURS = "outrider.dev/"


@dataclass(frozen=True, slots=True)
class Gathering:
    """How the pods of a group find each other; all of its texts are the same for every group."""

    nodes: int
    """Pods of a group."""
    index: str
    """Label that numbers them; pod 0 leads."""
    leader: tuple[Object, ...]
    """Variables of which the last is the leader's host name."""


def by_stateful_set(owner: Owner, role: Role, nodes: int) -> Gathering:
    """Of groups that have a StatefulSet each."""
    name, service = {"name": OWN_NAME, **_label(GROUP_LABEL)}, nodes_name(owner.name, role)
    host = f"$({OWN_NAME})-0.{service}.{owner.namespace}.svc"
    return Gathering(nodes, POD_INDEX, (name, {"name": LEADER, "value": host}))


def by_leader_worker_set(nodes: int) -> Gathering:
    """Of groups of a LeaderWorkerSet, which puts this variable before all others."""
    leader = {"name": LEADER, "value": "$(LWS_LEADER_ADDRESS)"}
    return Gathering(nodes, WORKER_INDEX, (leader,))


def environment(gathering: Gathering) -> list[Object]:
    """Variables of each container."""
    nodes = {"name": NODES, "value": str(gathering.nodes)}
    return [nodes, {"name": NODE, **_label(gathering.index)}, *gathering.leader]


def nodes_service(owner: Owner, role: Role, record: Record) -> Object:
    """Gives every pod of a role's groups a name, long before it is ready."""
    name = nodes_name(owner.name, role)
    port = {"name": "rendezvous", "port": RENDEZVOUS, "targetPort": RENDEZVOUS, "protocol": "TCP"}
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
    """One group. Its pods start together, and never change; `served`: all were ready once."""
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
    return made


def leader_worker_set(
    owner: Owner, role: Role, nodes: int, template: Object, replicas: int | None, to: Bounds
) -> Object:
    """All groups of a role, which start again as a whole; `replicas` None: someone else owns the
    number. Its only strategy is RollingUpdate: Recreate takes all groups at once. Bounds are whole
    numbers, for it rounds shares its own way and refuses two that come to 0."""
    rolling = {
        "maxUnavailable": to.unavailable if to.unavailable or to.surge else 1,
        "maxSurge": to.surge,
    }
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
        spec["replicas"] = replicas
    return child(LEADER_WORKER_SET, owner, role_name(owner.name, role), role, spec=spec)


def as_it_is(carrier: Carrier, replicas: int) -> Object:
    """An object of an older description, which nobody can build any more, with its own fields; of a
    StatefulSet the number of its pods stays."""
    live, meta = carrier.live, carrier.live["metadata"]
    spec: dict[str, Any] = dict(live["spec"])
    if carrier.kind != STATEFUL_SET.name:
        spec["replicas"] = replicas
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}
    kept["annotations"] = _ours(meta.get("annotations", {}))
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": kept, "spec": spec}


def _ours(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if key.startswith(OURS)}


def _label(name: str) -> Object:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}}
