"""Fake workers at the addresses of running pods: started, restarted and ended as a kubelet would.

    with PodWorkers.following(control_plane, tmp_path, namespace) as workers:
        draft, = workers.wait_for(Role.DRAFT, 1)
        draft.behave(ready=False)

Pods are found by the label `outrider.dev/role`. Leaves what a worker does to `fake_worker`.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from outrider.client import Client, ClientError, State
from outrider.contract.ports import GRPC
from outrider.contract.settings import Role
from tests.kube import fake_worker, pod_files
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import START_SECONDS, ControlPlane
from tests.kube.pod_watch import Pod, PodWatch

BEHAVIOUR = "behaviour.json"
LABEL = "outrider.dev/role"
MOST_PAUSE = 8.0
POLL_SECONDS = 0.02
NURSERY = multiprocessing.get_context("forkserver")
"""Imports once what every worker needs, which takes longer than all else that a start takes."""
NURSERY.set_forkserver_preload([fake_worker.__name__])


@dataclass(slots=True)
class PodWorker:
    """The worker of one pod, through all its lives."""

    pod: Pod
    folder: Path
    behaviour: Behaviour
    process: BaseProcess | None = None
    lives: int = 0
    _not_before: float = 0.0
    _ended: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["name"])

    @property
    def role(self) -> Role:
        """As its label says."""
        return Role(self.pod["metadata"]["labels"][LABEL])

    @property
    def ip(self) -> str:
        """Of the pod."""
        return str(self.pod["status"]["podIP"])

    @property
    def log(self) -> Path:
        """Of all its lives."""
        return self.folder / "worker.log"

    def behave(self, **changes: Any) -> None:
        """Changes fields of its `Behaviour`; it acts on them with the next call that it gets."""
        self.behaviour = self.behaviour.but(changes)
        self.behaviour.write(self.folder / BEHAVIOUR)

    def state(self) -> State:
        """What it says of itself; raises `ClientError`."""
        with Client(f"{self.ip}:{GRPC}") as client:
            return client.state(timeout=5)

    @property
    def answers(self) -> bool:
        """Whether its process runs and says how it is."""
        try:
            return self.process is not None and bool(self.state())
        except ClientError:
            return False

    def kill(self) -> None:
        """SIGKILL, as when its container is lost; a new life begins within seconds."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """It answers nobody until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.pid is not None:
            os.kill(self.process.pid, number)

    def _start(self, control_plane: ControlPlane) -> None:
        namespace = self.pod["metadata"]["namespace"]
        pod_files.mount(
            self.pod, self.folder, lambda name: _config_map(control_plane, namespace, name)
        )
        own = ("--on", self.ip, "--behaviour", str(self.folder / BEHAVIOUR))
        given = pod_files.arguments(self.pod, self.folder)
        words = [*given, *own]
        self.process = NURSERY.Process(target=fake_worker.run, args=(words, self.log), daemon=True)
        self.process.start()
        self.lives += 1

    def restart(self, control_plane: ControlPlane) -> None:
        """Begins the next life if the last has ended: at once, then after ever longer pauses."""
        with self._turn:
            runs = self.process is not None and self.process.is_alive()
            now = time.monotonic()
            if runs or self._ended or now < self._not_before:
                return
            self._not_before = now + min(2.0**self.lives / 4, MOST_PAUSE)
            with contextlib.suppress(pod_files.NotYet):
                self._start(control_plane)

    def end(self) -> None:
        """Its pod is gone: no life follows."""
        with self._turn:
            self._ended = True
            if self.process is not None:
                self.process.kill()
                self.process.join()


@dataclass(slots=True)
class PodWorkers:
    """The workers of all pods of a namespace, or of all namespaces."""

    control_plane: ControlPlane
    folder: Path
    _workers: dict[str, PodWorker] = field(default_factory=dict)
    """By the pods' uids."""
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
        uid, status = pod["metadata"]["uid"], pod.get("status", {})
        if status.get("phase") != "Running" or not status.get("podIP"):
            return
        with self._lock:
            if self._ended:
                return
            worker = self._workers.get(uid)
            if worker is None:
                worker = self._workers[uid] = self._new(pod)
            worker.pod = pod
        worker.restart(self.control_plane)

    def _new(self, pod: Pod) -> PodWorker:
        about = pod["metadata"]
        folder = self.folder / f"{about['name']}-{about['uid'][:8]}"
        folder.mkdir()
        worker = PodWorker(
            pod, folder, self._defaults.get(Role(about["labels"][LABEL]), Behaviour())
        )
        worker.behave()
        return worker

    def _gone(self, uid: str) -> None:
        with self._lock:
            worker = self._workers.pop(uid, None)
        if worker is not None:
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


def _config_map(control_plane: ControlPlane, namespace: str, name: str) -> Mapping[str, str] | None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    try:
        with control_plane.open(path, timeout=30) as answer:
            data: dict[str, str] = json.load(answer).get("data", {})
            return data
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None
