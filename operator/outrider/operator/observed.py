"""Observed state of a service: itself, its children, its pods, as plain data.

Made from the watch caches and never changed; makes no request.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    LEADER_WORKER_SET,
    ROLE_SCALER,
    ChildKey,
    ServiceKey,
)
from outrider.operator.manifests.carriers import PodCarrier, RoleCarriers, find_carriers, owned
from outrider.operator.manifests.child import Owner
from outrider.operator.manifests.pins import Pin, revision_of, template_of
from outrider.operator.manifests.settings import MEMORY_KEY
from outrider.operator.naming import (
    FIELD_MANAGER,
    PROGRESS_ANNOTATION,
    ROLE_LABEL,
    intent_name,
    member_names,
    role_name,
)
from outrider.operator.pods import Pod, pod

Object = Mapping[str, Any]
ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class Workload:
    """One role's workload, as its controller reports it."""

    replicas: int
    """Replicas that are wanted."""
    ready: int
    updated: int
    available: int
    settled: bool
    """All wanted replicas are of the newest template, available, and no older one is left."""
    replacing: bool
    """Replicas of an older template are left, or its controller has not seen the newest."""
    failed: str
    """Why the rollout has stopped; empty if it has not."""
    owner: str
    """Field manager that last set the replicas; empty: none has."""
    revision: str = ""
    """Revision of the newest template."""

    @property
    def rolling_out(self) -> bool:
        """True if pods are being replaced or added. A rollout that has failed waits for a person,
        and nothing else need wait for it."""
        return not self.failed and (self.replacing or self.updated < self.replicas)


@dataclass(frozen=True, slots=True)
class Observed:
    """The state that a pass starts from."""

    owner: Owner
    generation: int
    raw: Object
    """The service as the API server holds it."""
    children: Mapping[ChildKey, Object]
    pods: Sequence[Pod]
    """Pods that answer: one for each replica."""
    followers: Sequence[Pod] = ()
    """The other pods of replicas on several machines."""
    carriers: Mapping[Role, RoleCarriers] = field(default_factory=dict)
    """The objects that keep each role's pods running."""
    at: float = 0.0
    """Time of the observation, in seconds since the epoch."""

    @property
    def key(self) -> ServiceKey:
        """Namespace and name of the service."""
        return self.owner.namespace, self.owner.name

    def workload(self, role: Role) -> Workload | None:
        """Return one role's workload, once it is there."""
        current = self.carriers.get(role, RoleCarriers())
        if current.newest is None:
            return None
        found = workload(current.newest.live, self.pods_of(role), self.at)
        if len(current.carriers) == 1:
            return found
        ready = sum(one.ready for one in current.carriers)
        return replace(found, ready=ready, available=ready, settled=False, replacing=True)

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """Return one role's pods that answer and are not being deleted, by name."""
        return _staying(self.pods, role)

    def members_of(self, role: Role) -> tuple[Pod, ...]:
        """Return the pods of `pods_of` and after them the other pods of their replicas."""
        return (*self.pods_of(role), *_staying(self.followers, role))

    def groups_of(self, role: Role) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the pods of each replica that has several, by the replica's name.

        While a LeaderWorkerSet rolls, replicas of its former size stay what they are, and some are
        there beyond those that it wants: what a leader says of its own replica counts.
        """
        wanted = self.carriers.get(role, RoleCarriers()).members
        known = (pod for pod in self.pods_of(role) if pod.group and pod.size)
        return {**wanted, **{pod.group: member_names(pod.group, pod.size) for pod in known}}

    def scaler_replicas(self, role: Role) -> int | None:
        """Return the number that an autoscaler, or a human, asks for through the role's scaler."""
        live = self.children.get((ROLE_SCALER.name, role_name(self.owner.name, role)))
        wanted = None if live is None else live["spec"].get("replicas")
        return None if wanted is None else int(wanted)

    @property
    def memory(self) -> str | None:
        """The stored memory of the control loop; None if there is none."""
        intent = self._own((CONFIG_MAP.name, intent_name(self.owner.name)))
        return None if intent is None else intent.get("data", {}).get(MEMORY_KEY)

    def _own(self, key: ChildKey) -> Object | None:
        live = self.children.get(key)
        return live if live is not None and owned(live, self.owner) else None

    @property
    def status(self) -> Object:
        """Status of the service as it was last written."""
        status: Object = self.raw.get("status") or {}
        return status


def observe(
    raw: Object, children: Iterable[Object], pods: Iterable[Object], at: float = 0.0
) -> Observed:
    """Return the observed state from raw objects; `at` in seconds since the epoch."""
    meta = raw["metadata"]
    owner = Owner(meta["namespace"], meta["name"], meta["uid"])
    known = {child_key(c): c for c in children}
    mine = [p for p in pods if p["metadata"]["labels"].get(ROLE_LABEL) in ROLES]
    every = [pod(p, at) for p in mine]
    return Observed(
        owner=owner,
        generation=int(meta["generation"]),
        raw=raw,
        children=known,
        pods=tuple(p for p in every if p.is_leader),
        followers=tuple(p for p in every if not p.is_leader),
        carriers={
            role: find_carriers(known, every, owner, role, Pin.of(raw, role)) for role in Role
        },
        at=at,
    )


def child_key(child: Object) -> ChildKey:
    """Return the key of a child among those of its service."""
    return child["kind"], child["metadata"]["name"]


def _staying(pods: Iterable[Pod], role: Role) -> tuple[Pod, ...]:
    mine = (pod for pod in pods if pod.role is role and not pod.leaving)
    return tuple(sorted(mine, key=lambda pod: pod.name))


def workload(raw: Object, leaders: Sequence[Pod] = (), at: float = 0.0) -> Workload:
    """Return one Deployment or LeaderWorkerSet; `leaders` are its role's pods that answer, `at` is
    the time in seconds since the epoch."""
    status = raw.get("status", {})
    wanted, updated = PodCarrier(raw).wanted, int(status.get("updatedReplicas", 0))
    available = int(status.get("availableReplicas", status.get("readyReplicas", 0)))
    generation = raw["metadata"]["generation"]
    observed = status.get("observedGeneration", generation if status else 0) >= generation
    total, mixed = int(status.get("replicas", 0)), _is_mixed(raw, leaders)
    return Workload(
        replicas=wanted,
        ready=int(status.get("readyReplicas", 0)),
        updated=updated,
        available=available,
        settled=observed and not mixed and updated == wanted == available == total,
        replacing=not observed or total > updated or mixed,
        failed=_failed(status) or _late(raw, leaders, at),
        owner=_owner_of_replicas(raw),
        revision=revision_of(template_of(raw)),
    )


def _is_mixed(raw: Object, leaders: Iterable[Pod]) -> bool:
    """True if a pod is of an older template. A LeaderWorkerSet's status does not say which template
    its controller has seen."""
    newest = revision_of(template_of(raw))
    return bool(newest) and any(pod.revision != newest for pod in leaders)


def _failed(status: Object) -> str:
    for condition in status.get("conditions", ()):
        late = condition.get("reason") == "ProgressDeadlineExceeded"
        if condition["type"] == "Progressing" and late:
            return str(condition.get("message", "no progress"))
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message", "pods are refused"))
    return ""


def _late(raw: Object, leaders: Iterable[Pod], at: float) -> str:
    """Return why a LeaderWorkerSet's rollout has stopped, which its controller does not report. It
    makes a group anew whenever a container of it ends, so that its pods may always be young."""
    notes = raw["metadata"].get("annotations", {})
    if raw.get("kind") != LEADER_WORKER_SET.name or PROGRESS_ANNOTATION not in notes:
        return ""
    seconds = int(notes[PROGRESS_ANNOTATION])
    newest = revision_of(template_of(raw))
    fresh = [pod for pod in leaders if pod.revision == newest]
    if late := [pod.name for pod in fresh if pod.late > seconds]:
        return f"{late[0]} was not ready within {seconds} s"
    serving = [pod.ready_for for pod in fresh if pod.ready]
    waited = min((_rolling_for(raw, at), *serving))
    if len(serving) >= PodCarrier(raw).replicas or waited <= seconds:
        return ""
    return f"no new group was ready within {seconds} s"


def _rolling_for(raw: Object, at: float) -> float:
    """Return seconds since a LeaderWorkerSet was written that has not come to rest since. 0: it
    has, or nothing says when. Its controller makes the condition Available once all is ready."""
    found = {one["type"]: one["status"] for one in raw.get("status", {}).get("conditions", ())}
    if "Available" in found and found.get("UpdateInProgress") != "True":
        return 0.0
    own = (m for m in raw["metadata"].get("managedFields", ()) if m["manager"] == FIELD_MANAGER)
    times = (one["time"] for one in own if one.get("operation") == "Apply" and "time" in one)
    moments = (datetime.datetime.fromisoformat(time).timestamp() for time in times)
    return min((at - moment for moment in moments), default=0.0)


def _owner_of_replicas(raw: Object) -> str:
    """Return the manager of `spec.replicas`; the operator if it is one of several."""
    owners = [
        entry.get("manager", "")
        for entry in raw["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(iter(owners), "")
