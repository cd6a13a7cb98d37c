"""Controllers of pods: which of the pods with a service's labels its own workloads have made.

Whoever makes a pod chooses its labels. A pod is a service's own where its controller is controlled
by a workload of the service, by their uids; what keeps the other pods of a group is controlled by
the group's leader. Each controller is read once. What a pod says of its controller is its maker's
free text: it keeps no other pod from being known. Leaves the workloads to `observed`.
"""

import asyncio
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.cluster.kinds import REPLICA_SET, STATEFUL_SET, ObjectKind

log = logging.getLogger(__name__)
Object = Mapping[str, Any]
KINDS = {(kind.api_version, kind.name): kind for kind in (REPLICA_SET, STATEFUL_SET)}
"""Kinds that control the pods of Deployments and LeaderWorkerSets."""
AGAIN_SECONDS = 60.0
"""Time after which a controller that is not the service's is read again: it may be adopted."""
MAX_AT_ONCE = 16
"""Controllers that are read in one pass: strangers may have made many."""
NAME = re.compile(r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A name that an object can have: a DNS subdomain (RFC 1123)."""
UNRELATED = (401, 408)
"""Statuses of answers that say nothing of the object: the operator was not known, or was slow."""


@dataclass(frozen=True, slots=True)
class _Controller:
    """What a pod says of its controller. All of it is compared: others can copy any part."""

    kind: ObjectKind
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Reading:
    owner: str = ""
    """Uid of the controller's own controller; empty: it has none, is gone or cannot be read."""
    at: float = -math.inf
    """When it was read."""


class PodControllers:
    """Controllers of the pods that carry one service's labels."""

    def __init__(self, writer: ClusterWriter, namespace: str, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._writer, self._namespace, self._clock = writer, namespace, clock
        self._service = ""
        """Uid of the service."""
        self._readings: dict[_Controller, _Reading] = {}
        self._own: set[_Controller] = set()
        """The service's own, also while their workload is gone and their pods end."""

    def own(self, pods: Iterable[Object]) -> list[Object]:
        """Return the pods that the service's workloads have made, as far as that is known."""
        return [pod for pod in pods if _named(pod) in self._own]

    async def read(self, service: str, workloads: Collection[str], pods: Sequence[Object]) -> None:
        """Read the controllers of which nothing is known; `service` and `workloads` are uids.

        Raises `ClusterError`, once all reads have ended, where a retry may succeed. One that is
        refused is not the service's, until it is read again.
        """
        if service != self._service:
            self._service, self._own = service, set()
        found = [one for one in map(_named, pods) if one is not None]
        self._own.intersection_update(found)
        self._readings = {one: self._readings.get(one, _Reading()) for one in found}
        self._learn(workloads, pods)
        late = self._clock() - AGAIN_SECONDS
        unknown = {one: had.at for one, had in self._readings.items() if one not in self._own}
        due = sorted((one for one, at in unknown.items() if at <= late), key=unknown.__getitem__)
        looks = (self._look(one) for one in due[:MAX_AT_ONCE])
        ends = await asyncio.gather(*looks, return_exceptions=True)
        self._learn(workloads, pods)
        if errors := list(filter(None, ends)):
            raise errors[0]

    def _learn(self, workloads: Collection[str], pods: Sequence[Object]) -> None:
        """Add what is the service's by what was read: what workloads control, then what leaders
        do."""
        for _ in range(2):
            owners = {*workloads, *(pod["metadata"]["uid"] for pod in self.own(pods))}
            self._own |= {one for one, had in self._readings.items() if had.owner in owners}

    async def _look(self, one: _Controller) -> None:
        try:
            live = await self._writer.get(one.kind, self._namespace, one.name) or {}
        except ClusterError as error:
            if error.transient or error.status in UNRELATED:
                raise
            log.warning("%s: not the service's: %s", one.name, error)
            live = {}
        is_it = live.get("metadata", {}).get("uid") == one.uid
        owner = controller_of(live).get("uid", "") if is_it else ""
        self._readings[one] = _Reading(owner, self._clock())


def controller_of(live: Object) -> Object:
    """Return the owner reference of an object's controller; empty: it has none."""
    owners: Iterable[Object] = live["metadata"].get("ownerReferences", ())
    return next((one for one in owners if one.get("controller")), {})


def _named(pod: Object) -> _Controller | None:
    """Return what a pod names as its controller; None: nothing that a service can have."""
    reference = controller_of(pod)
    kind = KINDS.get((reference.get("apiVersion", ""), reference.get("kind", "")))
    if kind is None or not NAME.fullmatch(reference["name"]):
        return None
    return _Controller(kind, reference["name"], reference["uid"])
