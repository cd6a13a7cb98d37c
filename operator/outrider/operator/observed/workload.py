"""Workload of one role, as its controller reports it, and why its rollout has stopped. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.kinds import LEADER_WORKER_SET
from outrider.operator.naming import FIELD_MANAGER, PROGRESS_ANNOTATION
from outrider.operator.observed.live_workloads import LiveWorkload
from outrider.operator.observed.pins import revision_of, template_of
from outrider.operator.observed.pods import UNSCHEDULABLE, Pod, seconds_since

Object = Mapping[str, Any]


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


def workload(raw: Object, leaders: Sequence[Pod] = (), at: float = 0.0) -> Workload:
    """Return one Deployment or LeaderWorkerSet; `leaders` are its role's pods that answer, `at` is
    the time in seconds since the epoch."""
    status = raw.get("status", {})
    wanted, updated = LiveWorkload(raw).wanted, int(status.get("updatedReplicas", 0))
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
        failed=_failed(status, _has_time(raw, leaders)) or _late(raw, leaders, at),
        owner=_owner_of_replicas(raw),
        revision=revision_of(template_of(raw)),
    )


def _is_mixed(raw: Object, leaders: Iterable[Pod]) -> bool:
    """True if a pod is of an older template. A LeaderWorkerSet's status does not say which template
    its controller has seen."""
    newest = revision_of(template_of(raw))
    return bool(newest) and any(pod.revision != newest for pod in leaders)


def _new(raw: Object, leaders: Iterable[Pod]) -> list[Pod]:
    """Return the pods of the newest template."""
    newest = revision_of(template_of(raw))
    return [pod for pod in leaders if pod.revision == newest]


def _has_time(raw: Object, leaders: Iterable[Pod]) -> bool:
    """True if a new pod waits in a queue, or left it so short a time ago that it may still start;
    its Deployment counts from when it was made."""
    seconds = raw["spec"].get("progressDeadlineSeconds", 0)
    fresh = (pod for pod in _new(raw, leaders) if not pod.ready)
    return any(pod.late < seconds and not pod.trouble.startswith(UNSCHEDULABLE) for pod in fresh)


def _failed(status: Object, has_time: bool) -> str:
    for condition in status.get("conditions", ()):
        late = condition.get("reason") == "ProgressDeadlineExceeded" and not has_time
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
    fresh = _new(raw, leaders)
    if late := [pod.name for pod in fresh if pod.late > seconds]:
        return f"{late[0]} was not ready within {seconds} s"
    serving = [pod.ready_for for pod in fresh if pod.ready]
    waited = min((_rolling_for(raw, at), *serving))
    if len(serving) >= LiveWorkload(raw).replicas or waited <= seconds:
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
    return min((seconds_since(time, at) for time in times), default=0.0)


def _owner_of_replicas(raw: Object) -> str:
    """Return the manager of `spec.replicas`; the operator if it is one of several."""
    owners = [
        entry.get("manager", "")
        for entry in raw["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(iter(owners), "")
