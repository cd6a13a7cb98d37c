"""Readiness of pods as a kubelet's probes find it: what their workers say, told to the API server.

kwok makes every pod ready once and for ever. Looks when it is asked to.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.client import ClientError
from outrider.contract.settings import Role
from tests.kube.pod_workers import PodWorker, PodWorkers
from tests.kube.space import Refused, Space


@dataclass(frozen=True, slots=True)
class PodProbes:
    """Probes of a role's pods."""

    space: Space
    workers: PodWorkers
    role: Role
    _told: dict[str, bool] = field(default_factory=dict)
    """Readiness that was told to the API server, by the pods' uids."""

    def look(self) -> int:
        """Once at every pod; how many are ready."""
        serving = [self._look_at(worker) for worker in self.workers.of(self.role)]
        return sum(serving)

    def until(self, holds: Callable[[], bool], what: str, pods: int = 0) -> None:
        """Waits until it holds and at least so many pods are ready, and looks meanwhile."""
        self.space.until(lambda: self.look() >= pods and holds(), what)

    def _look_at(self, worker: PodWorker) -> bool:
        uid, ready = worker.pod["metadata"]["uid"], _serves(worker)
        if self._told.get(uid, True) != ready:
            with contextlib.suppress(Refused):  # it is gone
                self.space.set_pod_ready(worker.name, ready)
                self._told[uid] = ready
        return ready


def _serves(worker: PodWorker) -> bool:
    try:
        return worker.state().ready
    except ClientError:
        return False
