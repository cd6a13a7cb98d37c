"""A pod of a worker: what it is, whether it serves, and why it does not start.

Read from the cluster's objects as they are watched; pure.
"""

import contextlib
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.naming import (
    DELETION_COST,
    GROUP_SIZE,
    IDENTITY_ANNOTATION,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVICE_LABEL,
    SETTINGS_ANNOTATION,
    WORKER_GROUP,
    WORKER_INDEX,
    role_name,
)

Object = Mapping[str, Any]
GATED, UNSCHEDULABLE = "SchedulingGated", "Unschedulable"
"""The scheduler's words for a pod that is held in a queue, and for one that no node has room for; a
`Pod.trouble` begins with them."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of one worker."""

    uid: str
    name: str
    role: Role
    revision: str
    address: str
    """IP; empty until it has one."""
    ready: bool
    leaving: bool
    """Being deleted."""
    settings: tuple[str, ...]
    """Names of the ConfigMaps that it starts from."""
    trouble: str
    """Why it does not start, in the cluster's words; empty if nothing is known to be wrong."""
    late: float = 0.0
    """Seconds since it was scheduled, or made where no node has room, if it has never been ready;
    else 0, also while it waits in a queue."""
    group: str = ""
    """Name of its replica, where that has several pods."""
    number: int = 0
    """Its own among the pods of its replica, from 0; number 0 answers for all."""
    size: int = 0
    """Pods of its replica, where its annotation says it; 0: the LeaderWorkerSet does."""
    unready: float = 0.0
    """Seconds since it was ready last, or was made; 0: it is ready."""
    ready_for: float = 0.0
    """Seconds since it got ready; 0: it is not."""
    deletion_cost: str = ""
    """What a ReplicaSet that shrinks orders it by; empty: nothing was written."""
    identity: str = ""
    """DNS name in its worker's certificate; empty: it has none."""

    @property
    def is_leader(self) -> bool:
        """True if it answers for its replica."""
        return self.number == 0

    @property
    def running(self) -> bool:
        """True if it can be reached."""
        return bool(self.address) and not self.leaving

    def at(self, port: int) -> str:
        """Return host:port of one of its servers, as URLs and gRPC take it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{port}"


def seconds_since(moment: str, at: float) -> float:
    """Return seconds from a time in RFC 3339 to `at`, which is in seconds since the epoch."""
    return at - datetime.datetime.fromisoformat(moment).timestamp()


def age(live: Object, now: float) -> float:
    """Return seconds since an object was made; `now` in seconds since the epoch."""
    created = live["metadata"].get("creationTimestamp")
    return 0.0 if created is None else seconds_since(created, now)


def is_ready(raw: Mapping[str, Any]) -> bool:
    """True if a pod's kubelet says that it is ready."""
    conditions = raw.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def has_begun(raw: Object) -> bool:
    """True if a container of a pod runs or has run: what they mount is there."""
    every = _containers(raw.get("status", {}))
    return is_ready(raw) or any(not one.get("state", {}).keys() <= {"waiting"} for one in every)


def has_ended(raw: Object) -> bool:
    """True for a pod that was evicted, preempted or shut down with its node: Kubernetes keeps it,
    and its controller has made another."""
    return raw.get("status", {}).get("phase") in ("Failed", "Succeeded")


def pod(raw: Object, at: float = 0.0) -> Pod:
    """Return one pod; `at` in seconds since the epoch."""
    meta, status = raw["metadata"], raw.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        role=Role(meta["labels"][ROLE_LABEL]),
        revision=meta["labels"].get(REVISION_LABEL, ""),
        address=status.get("podIP", ""),
        ready=is_ready(raw),
        leaving="deletionTimestamp" in meta,
        settings=tuple(meta.get("annotations", {}).get(SETTINGS_ANNOTATION, "").split(",")),
        trouble=_trouble(status, conditions, at),
        late=_late(raw, conditions, at),
        group=_group(meta["labels"]),
        number=_decimal(meta["labels"].get(WORKER_INDEX, "")),
        size=_decimal(meta.get("annotations", {}).get(GROUP_SIZE, "")),
        unready=_unready(raw, conditions.get("Ready", {}), at),
        ready_for=_ready_for(conditions.get("Ready", {}), at),
        deletion_cost=meta.get("annotations", {}).get(DELETION_COST, ""),
        identity=meta.get("annotations", {}).get(IDENTITY_ANNOTATION, ""),
    )


def _late(raw: Object, conditions: Mapping[str, Object], at: float) -> float:
    scheduled = conditions.get("PodScheduled", {})
    if _served(conditions) or scheduled.get("reason") == GATED:
        return 0.0
    since = scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None
    return age(raw, at) if since is None else max(0.0, seconds_since(since, at))


def _served(conditions: Mapping[str, Object]) -> bool:
    """True if a pod is ready, or was: only then it turned unready after its containers began."""
    ready, begun = conditions.get("Ready", {}), conditions.get("Initialized", {})
    changed, began = (one.get("lastTransitionTime", "") for one in (ready, begun))
    lost = begun.get("status") == "True" and changed > began
    return bool(ready.get("status") == "True" or lost)


def _decimal(word: str) -> int:
    return int(word) if word.isdecimal() else 0


def _group(labels: Object) -> str:
    if WORKER_GROUP not in labels:
        return ""
    whole = role_name(labels.get(SERVICE_LABEL, ""), labels[ROLE_LABEL])
    return f"{whole}-{labels[WORKER_GROUP]}"


def _unready(raw: Object, ready: Object, at: float) -> float:
    """Return seconds since a pod was ready last; where it never was, since it was made."""
    if ready.get("status") == "True":
        return 0.0
    since = ready.get("lastTransitionTime")
    if since is None:
        return age(raw, at)
    return max(0.0, seconds_since(since, at))


def _ready_for(ready: Object, at: float) -> float:
    since = ready.get("lastTransitionTime")
    if since is None or ready.get("status") != "True":
        return 0.0
    return max(0.0, seconds_since(since, at))


STEADY_SECONDS = 300.0
"""Time without an end after which a container that ended is well again: the longest back-off of a
kubelet, so that a pod that crashes again and again is in trouble all the time, not now and then."""


def _trouble(status: Object, conditions: Mapping[str, Object], at: float) -> str:
    """Return the first problem that keeps a pod from starting, or from staying up."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', UNSCHEDULABLE)}: {scheduled.get('message', '')}"
    found = (_ends(container, at) or _waits(container) for container in _containers(status))
    of_pod = f"{status['reason']}: {status.get('message', '')}" if status.get("reason") else ""
    return next((words for words in found if words), of_pod)


def _containers(status: Object) -> list[Object]:
    """Return the states of a pod's containers, in the order in which they begin."""
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _waits(container: Object) -> str:
    """Say why a container has not started."""
    waiting = container.get("state", {}).get("waiting")
    if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return f"{waiting['reason']}: {waiting.get('message', container['name'])}"
    return ""


def _ends(container: Object, at: float) -> str:
    """Say how a container last ended and how often it has; the same words until it ends again,
    whether it waits, runs or has just ended. Empty where it runs steadily."""
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    restarts = int(container.get("restartCount", 0))
    if not ended or (not restarts and not ended.get("exitCode")) or _is_steady(state, at):
        return ""
    times = restarts + ("running" not in state)
    said = f"{container['name']} ended with {_how(ended)}"
    if times > 1:
        said = f"{CRASHING}: {container['name']} has ended {times} times, last with {_how(ended)}"
    return said + _last_words(ended)


CRASHING = "CrashLoopBackOff"
"""The kubelet's own word for what it does about a container that ends again and again."""


def _is_steady(state: Object, at: float) -> bool:
    """True if a container has run for long, or is done."""
    if "running" in state:
        since = state["running"].get("startedAt")
        return since is None or seconds_since(since, at) >= STEADY_SECONDS
    return bool(state.get("terminated", {}).get("exitCode") == 0)


def _how(ended: Object) -> str:
    """Return an exit code, or a signal, with the kubelet's reason where that says more."""
    reason, number = ended.get("reason", ""), ended.get("signal")
    words = f"signal {number}" if number else f"exit code {ended.get('exitCode', 0)}"
    return words if reason in ("", "Error", "Completed") else f"{words} ({reason})"


def _last_words(ended: Object) -> str:
    """Quote how the log of a container's last life ends: what a worker says that cannot serve."""
    lines = str(ended.get("message", "")).strip().splitlines()
    return f"; it ended with: {_error(lines[-1].strip())}" if lines else ""


def _error(line: str) -> str:
    """Return the error that a worker reports; `prepare` writes it as JSON."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(line)["error"])
    return line
