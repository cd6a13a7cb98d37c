"""Fake workers at the addresses of running pods, one for each container that runs a worker.

    with PodWorkers.following(control_plane, tmp_path, namespace) as workers:
        draft, = workers.wait_for(Role.DRAFT, 1)
        draft.behave(ready=False)

Pods are found by the label `outrider.dev/role`. Leaves the life of each worker to `pod_worker`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.naming import CONTAINER, DRAFT_CONTAINER
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import START_SECONDS, ControlPlane
from tests.kube.pod_watch import Pod, PodWatch
from tests.kube.pod_worker import LABEL, PodWorker

POLL_SECONDS = 0.02
__all__ = ["LABEL", "PodWorker", "PodWorkers"]


@dataclass(slots=True)
class PodWorkers:
    """The workers of all pods of a namespace, or of all namespaces."""

    control_plane: ControlPlane
    folder: Path
    _workers: dict[tuple[str, str], PodWorker] = field(default_factory=dict)
    """Workers by the pods' uids and the containers' names."""
    _defaults: dict[Role, Behaviour] = field(default_factory=dict)
    _ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextlib.contextmanager
    def following(
        cls, control_plane: ControlPlane, folder: Path, namespace: str | None = None
    ) -> "Iterator[PodWorkers]":
        """Follows the pods until the end of the block; logs lie in `folder`, by pod."""
        workers = cls(control_plane, folder)
        watch = PodWatch(
            control_plane, LABEL, namespace, workers._pod, workers._gone, workers._turn
        )
        thread = threading.Thread(target=watch.follow, name="pod-workers")
        thread.start()
        try:
            yield workers
        finally:
            watch.closing.set()  # the thread ends by itself within a second
            workers._end()

    def behave(self, role: Role, **changes: Any) -> None:
        """Changes all workers of a role, those of pods to come included."""
        with self._lock:
            self._defaults[role] = self._defaults.get(role, Behaviour()).but(changes)
            for worker in self._workers.values():
                if worker.role is role:
                    worker.behave(**changes)

    def of(self, role: Role) -> list[PodWorker]:
        """Those of running pods, by name."""
        with self._lock:
            found = [worker for worker in self._workers.values() if worker.role is role]
        return sorted(found, key=lambda worker: worker.name)

    def sync(self) -> None:
        """Writes the files of all anew, as kubelets do some time after a Secret has changed."""
        for worker in (*self.of(Role.TARGET), *self.of(Role.DRAFT)):
            worker.sync(self.control_plane)

    def wait_for(self, role: Role, count: int) -> list[PodWorker]:
        """Exactly so many workers of a role, once all of them answer."""
        found: list[PodWorker] = []

        def there() -> bool:
            found[:] = self.of(role)
            return len(found) == count and all(worker.answers for worker in found)

        deadline = time.monotonic() + START_SECONDS
        while not there():
            if time.monotonic() > deadline:
                said = "\n".join(f"{w.name}: {w.log.read_text()[-1000:]}" for w in found)
                raise AssertionError(
                    f"{len(found)} workers, not {count} {role}s that answer\n{said}"
                )
            time.sleep(POLL_SECONDS)
        return found

    def _pod(self, pod: Pod) -> None:
        status = pod.get("status", {})
        if status.get("phase") != "Running" or not status.get("podIP"):
            return
        self._name(pod["metadata"]["name"], status["podIP"])
        names = {container["name"] for container in pod["spec"]["containers"]}
        for name in (CONTAINER, *({DRAFT_CONTAINER} & names)):
            self._container(pod, name)

    def _container(self, pod: Pod, name: str) -> None:
        key = (pod["metadata"]["uid"], name)
        with self._lock:
            if self._ended:
                return
            worker = self._workers.get(key)
            if worker is None:
                worker = self._workers[key] = self._new(pod, name)
            worker.pod = pod
        worker.restart(self.control_plane)

    def _new(self, pod: Pod, name: str) -> PodWorker:
        about = pod["metadata"]
        folder = self.folder / f"{about['name']}-{about['uid'][:8]}" / name
        folder.mkdir(parents=True)
        worker = PodWorker(pod, folder, self._hosts, Behaviour(), name)
        worker.behaviour = self._defaults.get(worker.role, worker.behaviour)
        worker.behave()
        return worker

    @property
    def _hosts(self) -> Path:
        return self.folder / "hosts.json"

    def _name(self, pod: str, address: str) -> None:
        """Gives a pod's name its address, in one step."""
        with self._lock:
            known = json.loads(self._hosts.read_text()) if self._hosts.exists() else {}
            if known.get(pod) != address:
                self.folder.mkdir(parents=True, exist_ok=True)
                new = self._hosts.with_suffix(".new")
                new.write_text(json.dumps({**known, pod: address}))
                new.replace(self._hosts)

    def _gone(self, uid: str) -> None:
        with self._lock:
            gone = [self._workers.pop(key) for key in list(self._workers) if key[0] == uid]
        for worker in gone:
            worker.end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.end()

    def _turn(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.restart(self.control_plane)
