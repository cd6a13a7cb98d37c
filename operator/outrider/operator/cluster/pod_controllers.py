"""Controllers of pods: which of the pods with a service's labels its own workloads have made.

Whoever makes a pod chooses its labels. A pod is a service's own where its controller is controlled
by a workload of the service, by their uids; what keeps the other pods of a group is controlled by
the group's leader. Each controller is read once. Leaves the workloads to `observed`.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.cluster.kinds import REPLICA_SET, STATEFUL_SET, ObjectKind

Object = Mapping[str, Any]
KINDS = {(kind.api_version, kind.name): kind for kind in (REPLICA_SET, STATEFUL_SET)}
"""Kinds that control the pods of Deployments and LeaderWorkerSets."""
AGAIN_SECONDS = 60.0
"""Time after which a controller that is not the service's is read again: it may be adopted."""
MAX_AT_ONCE = 16
"""Controllers that are read in one pass: strangers may have made many."""


@dataclass(frozen=True, slots=True)
class _Reading:
    owner: str = ""
    """Uid of the controller's own controller; empty: it has none, or is gone."""
    at: float = -math.inf
    """When it was read."""


class PodControllers:
    """Controllers of the pods that carry one service's labels."""

    def __init__(self, writer: ClusterWriter, namespace: str, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._writer, self._namespace, self._clock = writer, namespace, clock
        self._service = ""
        """Uid of the service."""
        self._readings: dict[str, _Reading] = {}
        """By the controllers' uids."""
        self._own: set[str] = set()
        """Uids of the service's own, also while their workload is gone and their pods end."""

    def own(self, pods: Iterable[Object]) -> list[Object]:
        """Return the pods that the service's workloads have made, as far as that is known."""
        return [pod for pod in pods if controller_of(pod).get("uid") in self._own]

    async def read(self, service: str, workloads: Collection[str], pods: Sequence[Object]) -> None:
        """Read the controllers of which nothing is known; `service` and `workloads` are uids.

        Raises `ClusterError`.
        """
        if service != self._service:
            self._service, self._own = service, set()
        found = {one["uid"]: one for one in map(controller_of, pods) if _kind(one) is not None}
        self._own &= found.keys()
        self._readings = {uid: self._readings.get(uid, _Reading()) for uid in found}
        self._learn(workloads, pods)
        late = self._clock() - AGAIN_SECONDS
        due = [uid for uid in found.keys() - self._own if self._readings[uid].at <= late]
        due.sort(key=lambda uid: (self._readings[uid].at, uid))
        await asyncio.gather(*(self._look(found[uid]) for uid in due[:MAX_AT_ONCE]))
        self._learn(workloads, pods)

    def _learn(self, workloads: Collection[str], pods: Sequence[Object]) -> None:
        """Add what is the service's by what was read: what workloads control, then what leaders
        do."""
        for _ in range(2):
            owners = {*workloads, *(pod["metadata"]["uid"] for pod in self.own(pods))}
            self._own |= {uid for uid, one in self._readings.items() if one.owner in owners}

    async def _look(self, reference: Object) -> None:
        kind, uid = _kind(reference), reference["uid"]
        assert kind is not None, "the others are not read"
        live = await self._writer.get(kind, self._namespace, reference["name"])
        is_there = live is not None and live["metadata"]["uid"] == uid
        owner = controller_of(live).get("uid", "") if live is not None and is_there else ""
        self._readings[uid] = _Reading(owner, self._clock())


def controller_of(live: Object) -> Object:
    """Return the owner reference of an object's controller; empty: it has none."""
    owners: Iterable[Object] = live["metadata"].get("ownerReferences", ())
    return next((one for one in owners if one.get("controller")), {})


def _kind(reference: Object) -> ObjectKind | None:
    return KINDS.get((reference.get("apiVersion", ""), reference.get("kind", "")))
