"""What one pass sees of a service: itself, its children, its pods, as plain data.

Made from the watch caches and never changed; asks nobody.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.carriers import Record, Standing, age, owned, standing
from outrider.operator.kinds import CONFIG_MAP, DEPLOYMENT, LEADER_WORKER_SET, ROLE_SCALER
from outrider.operator.manifests.child import ChildKey, Owner
from outrider.operator.manifests.settings import MEMORY_KEY
from outrider.operator.naming import (
    FIELD_MANAGER,
    POD_INDEX,
    PROGRESS_ANNOTATION,
    REVISION_LABEL,
    ROLE_LABEL,
    SETTINGS_ANNOTATION,
    WORKER_INDEX,
    intent_name,
    role_name,
)

Object = Mapping[str, Any]
ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class Pod:
    """One worker's pod."""

    uid: str
    name: str
    role: Role
    revision: str
    address: str
    """IP; empty until it has one."""
    ready: bool
    leaving: bool
    """Being deleted."""
    settings: str
    """Name of the ConfigMap that it starts from."""
    trouble: str
    """Why it does not come up, in the cluster's words; empty if nothing is known to be wrong."""
    late: float = 0.0
    """Seconds since it was made, if it has never been ready; else 0."""
    leads: bool = True
    """Whether it answers for its replica, of whose pods it may be one of several."""

    @property
    def running(self) -> bool:
        """Whether it can be spoken to."""
        return bool(self.address) and not self.leaving

    def at(self, port: int) -> str:
        """host:port of one of its servers, as URLs and gRPC take it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Workload:
    """What keeps one role's pods running, as its controller reports it."""

    replicas: int
    """Wanted."""
    ready: int
    updated: int
    available: int
    settled: bool
    """All wanted replicas are of the newest template, available, and no older one is left."""
    replacing: bool
    """Replicas of an older template are left, or its controller has not seen the newest."""
    failed: str
    """Why the roll-out has stopped; empty if it has not."""
    owner: str
    """Field manager that last set the replicas; empty: nobody has."""

    @property
    def rolling_out(self) -> bool:
        """Whether pods are being replaced, or more are on their way; one that has failed waits for
        a person, and nothing else need wait for it."""
        return not self.failed and (self.replacing or self.updated < self.replicas)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a pass starts from."""

    owner: Owner
    generation: int
    raw: Object
    """The service as the API server holds it."""
    children: Mapping[ChildKey, Object]
    pods: Sequence[Pod]
    """Those that answer: one for each replica."""
    followers: Sequence[Pod] = ()
    """The others, of replicas on several machines."""
    standings: Mapping[Role, Standing] = field(default_factory=dict)
    """What keeps each role's pods running."""
    at: float = 0.0
    """When this was seen, in seconds since the epoch."""

    def workload(self, role: Role) -> Workload | None:
        """One role's workload, once it is there."""
        stands = self.standings.get(role, Standing())
        if stands.record is not None:
            return of_groups(stands, stands.record, self.at)
        name = role_name(self.owner.name, role)
        for kind in (DEPLOYMENT, LEADER_WORKER_SET):
            live = self._own((kind.name, name))
            if live is not None:
                return workload(live, self.pods_of(role))
        return None

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """One role's pods that answer and are not being deleted, by name."""
        return _staying(self.pods, role)

    def members_of(self, role: Role) -> tuple[Pod, ...]:
        """The same with the other pods of its replicas, after them."""
        return (*self.pods_of(role), *_staying(self.followers, role))

    def scaler_replicas(self, role: Role) -> int | None:
        """What an autoscaler, or a human, asks for through the role's scaler."""
        live = self.children.get((ROLE_SCALER.name, role_name(self.owner.name, role)))
        wanted = None if live is None else live["spec"].get("replicas")
        return None if wanted is None else int(wanted)

    @property
    def memory(self) -> str | None:
        """What the control loop remembers, as it was stored; None if nothing was."""
        intent = self._own((CONFIG_MAP.name, intent_name(self.owner.name)))
        return None if intent is None else intent.get("data", {}).get(MEMORY_KEY)

    def _own(self, key: ChildKey) -> Object | None:
        live = self.children.get(key)
        return live if live is not None and owned(live, self.owner) else None

    @property
    def status(self) -> Object:
        """The status as it was last written."""
        status: Object = self.raw.get("status") or {}
        return status


def observed(
    raw: Object, children: Iterable[Object], pods: Iterable[Object], at: float = 0.0
) -> Observed:
    """Puts a pass's view together from raw objects; `at` in seconds since the epoch."""
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
        pods=tuple(p for p in every if p.leads),
        followers=tuple(p for p in every if not p.leads),
        standings={role: standing(known, mine, owner, role) for role in Role},
        at=at,
    )


def child_key(child: Object) -> ChildKey:
    """By what a child is told from others of its service."""
    return child["kind"], child["metadata"]["name"]


def pod(raw: Object, at: float = 0.0) -> Pod:
    """One pod; `at` in seconds since the epoch."""
    meta, status = raw["metadata"], raw.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        role=Role(meta["labels"][ROLE_LABEL]),
        revision=meta["labels"].get(REVISION_LABEL, ""),
        address=status.get("podIP", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        leaving="deletionTimestamp" in meta,
        settings=meta.get("annotations", {}).get(SETTINGS_ANNOTATION, ""),
        trouble=_trouble(status, conditions),
        late=0.0 if _served(conditions) else age(raw, at),
        leads=_leads(meta["labels"]),
    )


def _served(conditions: Mapping[str, Object]) -> bool:
    """Whether a pod is ready, or was: only then it turned unready after its containers began."""
    ready, begun = conditions.get("Ready", {}), conditions.get("Initialized", {})
    changed, began = (one.get("lastTransitionTime", "") for one in (ready, begun))
    lost = begun.get("status") == "True" and changed > began
    return bool(ready.get("status") == "True" or lost)


def _leads(labels: Object) -> bool:
    """By its number in its group, if it has one; in a LeaderWorkerSet the label that StatefulSets
    give numbers the groups instead."""
    return bool(labels.get(WORKER_INDEX, labels.get(POD_INDEX, "0")) == "0")


def _staying(pods: Iterable[Pod], role: Role) -> tuple[Pod, ...]:
    mine = (pod for pod in pods if pod.role is role and not pod.leaving)
    return tuple(sorted(mine, key=lambda pod: pod.name))


def workload(raw: Object, leaders: Iterable[Pod] = ()) -> Workload:
    """One Deployment or LeaderWorkerSet; `leaders` are the pods of it that answer."""
    spec, status = raw["spec"], raw.get("status", {})
    wanted, updated = int(spec.get("replicas", 1)), int(status.get("updatedReplicas", 0))
    available = int(status.get("availableReplicas", status.get("readyReplicas", 0)))
    generation = raw["metadata"]["generation"]
    seen = status.get("observedGeneration", generation if status else 0) >= generation
    total = int(status.get("replicas", 0))
    return Workload(
        replicas=wanted,
        ready=int(status.get("readyReplicas", 0)),
        updated=updated,
        available=available,
        settled=seen and updated == wanted == available == total,
        replacing=not seen or total > updated,
        failed=_failed(status) or _late(raw, leaders),
        owner=_owner_of_replicas(raw),
    )


def of_groups(stands: Standing, wanted: Record, now: float) -> Workload:
    """A role whose groups have an object each, as one."""
    fresh = [one for one in stands.carriers if one.fresh(wanted.kind, wanted.revision)]
    total, updated = (sum(one.groups for one in some) for some in (stands.carriers, fresh))
    ready, replacing = sum(one.ready for one in stands.carriers), total > updated
    late = [one for one in fresh if one.late(wanted.progress, now)]
    words = f"{late[0].name} was not ready within {wanted.progress} s" if late else ""
    return Workload(
        replicas=wanted.replicas,
        ready=ready,
        updated=updated,
        available=ready,
        settled=wanted.replicas == updated == ready and not replacing,
        replacing=replacing,
        failed=words,
        owner=FIELD_MANAGER,
    )


def _trouble(status: Object, conditions: Mapping[str, Object]) -> str:
    """The first thing that keeps a pod from coming up."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for container in every:
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', container['name'])}"
    return ""


def _failed(status: Object) -> str:
    for condition in status.get("conditions", ()):
        late = condition.get("reason") == "ProgressDeadlineExceeded"
        if condition["type"] == "Progressing" and late:
            return str(condition.get("message", "no progress"))
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message", "pods are refused"))
    return ""


def _late(raw: Object, leaders: Iterable[Pod]) -> str:
    """The same of a LeaderWorkerSet, whose controller does not say it."""
    notes = raw["metadata"].get("annotations", {})
    if raw.get("kind") != LEADER_WORKER_SET.name or PROGRESS_ANNOTATION not in notes:
        return ""
    seconds = int(notes[PROGRESS_ANNOTATION])
    template = raw["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    newest = template.get("metadata", {}).get("labels", {}).get(REVISION_LABEL)
    late = (pod for pod in leaders if pod.revision == newest and pod.late > seconds)
    return next((f"{pod.name} was not ready within {seconds} s" for pod in late), "")


def _owner_of_replicas(raw: Object) -> str:
    """Who set `spec.replicas` last; ours if we did among others."""
    owners = [
        entry.get("manager", "")
        for entry in raw["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(iter(owners), "")
