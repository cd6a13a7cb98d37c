"""The fake worker of one container: started and restarted as a kubelet would, told how to behave.

Leaves which pods there are to `pod_workers`, and what a worker does to `fake_worker`.
"""

import base64
import contextlib
import json
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from outrider.client import Client, ClientError, State
from outrider.contract.process import DRAFT_GRPC_PORT, GRPC_PORT
from outrider.contract.settings import PolicySettings, Role
from outrider.operator.naming import CONTAINER, DRAFT_CONTAINER
from tests.kube import fake_worker, pod_files
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import ControlPlane
from tests.kube.nursery import NURSERY
from tests.kube.pod_watch import Pod

BEHAVIOUR = "behaviour.json"
LABEL = "outrider.dev/role"
OWN = "OUTRIDER_"
"""Beginning of the variables that a worker reads."""
MAX_PAUSE = 8.0


@dataclass(slots=True)
class PodWorker:
    """The worker of one container, through all its lives."""

    pod: Pod
    folder: Path
    hosts: Path
    """File with the address of each pod by its name: what a cluster's DNS knows."""
    behaviour: Behaviour
    container: str = CONTAINER
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
        """As the pod's label says; in a target's pod a draft may have a container too."""
        beside = self.container == DRAFT_CONTAINER
        return Role.DRAFT if beside else Role(self.pod["metadata"]["labels"][LABEL])

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
        port = DRAFT_GRPC_PORT if self.container == DRAFT_CONTAINER else GRPC_PORT
        with Client(f"{self.ip}:{port}") as client:
            return client.state(timeout=5)

    @property
    def pushed(self) -> list[PolicySettings]:
        """All policies that it was given and took, in all its lives."""
        lines = self.log.read_text().splitlines()
        told = [line.partition(" policy ")[2] for line in lines if " policy {" in line]
        return [PolicySettings.from_json(text) for text in told]

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

    def sync(self, control_plane: ControlPlane) -> None:
        """Writes its files anew, as a kubelet does some time after a Secret has changed."""
        namespace = self.pod["metadata"]["namespace"]
        pod_files.mount(
            self.pod,
            self.folder,
            lambda name: _data(control_plane, namespace, "configmaps", name),
            self.container,
            lambda name: _secret(control_plane, namespace, name),
        )

    def _start(self, control_plane: ControlPlane) -> None:
        self.sync(control_plane)
        own = ("--on", self.ip, "--behaviour", str(self.folder / BEHAVIOUR))
        own += ("--hosts", str(self.hosts))
        given = pod_files.arguments(self.pod, self.folder, self.container)
        told = pod_files.environment(self.pod, self.container)
        variables = {key: text for key, text in told.items() if key.startswith(OWN)}
        everything = ([*given, *own], self.log, variables)
        self.process = NURSERY.Process(target=fake_worker.run, args=everything, daemon=True)
        self.process.start()
        self.lives += 1

    def restart(self, control_plane: ControlPlane) -> None:
        """Begins the next life if the last has ended: at once, then after ever longer pauses."""
        with self._turn:
            runs = self.process is not None and self.process.is_alive()
            now = time.monotonic()
            if runs or self._ended or now < self._not_before:
                return
            self._not_before = now + min(2.0**self.lives / 4, MAX_PAUSE)
            with contextlib.suppress(pod_files.NotYet):
                self._start(control_plane)

    def end(self) -> None:
        """Its pod is gone: no life follows."""
        with self._turn:
            self._ended = True
            if self.process is not None:
                self.process.kill()
                self.process.join()


def _secret(control_plane: ControlPlane, namespace: str, name: str) -> Mapping[str, str] | None:
    data = _data(control_plane, namespace, "secrets", name)
    return data and {key: base64.b64decode(value).decode() for key, value in data.items()}


def _data(
    control_plane: ControlPlane, namespace: str, plural: str, name: str
) -> Mapping[str, str] | None:
    path = f"/api/v1/namespaces/{namespace}/{plural}/{name}"
    try:
        with control_plane.open(path, timeout=30) as answer:
            data: dict[str, str] = json.load(answer).get("data", {})
            return data
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None
