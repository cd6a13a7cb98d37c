"""Fake workers of very many pods in one process, each on its own pod's address.

    with crowd(control_plane, tmp_path, Behaviour()):
        ...

For tests of size: a process for each pod would not fit. Says what `fake_worker` says; leaves out
what needs a process of its own: files that a pod mounts, drains, ends and new lives.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import ssl
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import cast

from grpc import aio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contract.process import CONTROL_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.contract.state import Link, LinkState
from outrider.protos.v1.internal import control_pb2_grpc
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.server import HttpServer, listen
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import ControlPlane
from tests.kube.fake_worker import FakeWorker
from tests.kube.pod_watch import Pod, PodWatch
from tests.kube.pod_workers import LABEL
from tests.kube.servers import Place

END_SECONDS = 10.0
NURSERY = multiprocessing.get_context("forkserver")
EVERYWHERE = f"0.0.0.0:{HTTP_PORT}"
NOBODY = PlainTextResponse("no worker has this address\n", 503)


class CrowdLinks:
    """Links that are up as soon as the crowd has the draft; nobody needs to be asked."""

    def __init__(self, workers: "dict[str, FakeWorker]") -> None:
        """`workers`: by address of their pods, and changed while this is in use."""
        self._workers = workers
        self._wanted: tuple[str, ...] = ()

    def want(self, addresses: Sequence[str]) -> None:
        """Links to these drafts and to no others."""
        self._wanted = tuple(addresses)

    def statuses(self, refuses: str) -> tuple[Link, ...]:
        """One for each wanted draft."""
        return tuple(self._status(address) for address in self._wanted)

    def _status(self, address: str) -> Link:
        draft = self._workers.get(address.rpartition(":")[0])
        if draft is None:
            return Link(address)
        return Link(address, LinkState.UP, incarnation=draft.incarnation)


class Crowd:
    """The workers of all pods that run, by their addresses."""

    def __init__(self, behaviour: Path) -> None:
        self._behaviour = behaviour
        self._workers: dict[str, FakeWorker] = {}
        self._applications: dict[str, ASGIApp] = {}
        self._servers: dict[str, aio.Server] = {}
        self._addresses: dict[str, str] = {}
        """By the pods' uids."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP on all addresses, answered by the worker of the one that was asked."""
        application = self._applications.get(scope["server"][0].removeprefix("::ffff:"), NOBODY)
        await application(scope, receive, send)

    async def there(self, pod: Pod) -> None:
        """A pod is there, or has changed: its worker starts once it runs."""
        uid, status = pod["metadata"]["uid"], pod.get("status", {})
        if uid in self._addresses or status.get("phase") != "Running" or not status.get("podIP"):
            return
        address = self._addresses[uid] = str(status["podIP"])
        worker = self._worker(pod)
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        control_pb2_grpc.add_ControlServicer_to_server(worker, server)
        for port in (GRPC_PORT, CONTROL_PORT):
            server.add_insecure_port(f"{address}:{port}")
        self._workers[address], self._servers[address] = worker, server
        self._applications[address] = draft_application(worker.is_ready, worker.routes())
        await server.start()

    async def gone(self, uid: str) -> None:
        """A pod is there no more."""
        address = self._addresses.pop(uid, None)
        if address is not None:
            del self._workers[address], self._applications[address]
            await self._servers.pop(address).stop(None)

    def _worker(self, pod: Pod) -> FakeWorker:
        role, name = Role(pod["metadata"]["labels"][LABEL]), pod["metadata"]["name"]
        settings = WorkerSettings(role=role, name=name, model=ModelSettings(uri="file:///none"))
        return FakeWorker(settings, self._behaviour, CrowdLinks(self._workers))


@dataclass(frozen=True, slots=True)
class _Administrator:
    """What the crowd's process knows of its control plane."""

    place: Place

    def open(self, path: str, timeout: float) -> HTTPResponse:
        context = ssl.create_default_context(cafile=str(self.place.authority.certificate))
        context.load_cert_chain(self.place.admin.certificate, self.place.admin.key)
        answer = urllib.request.urlopen(f"{self.place.url}{path}", context=context, timeout=timeout)
        return cast(HTTPResponse, answer)


async def serve(place: Place, namespace: str | None, behaviour: Path) -> None:
    """Until SIGTERM."""
    loop, ended, crowd = asyncio.get_running_loop(), asyncio.Event(), Crowd(behaviour)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    settings = WorkerSettings(
        role=Role.TARGET, name="crowd", model=ModelSettings(uri="file:///none")
    )
    http = HttpServer(crowd, listen(EVERYWHERE), settings)
    http.start()
    watch = PodWatch(
        _Administrator(place),
        LABEL,
        namespace,
        lambda pod: asyncio.run_coroutine_threadsafe(crowd.there(pod), loop).result(),
        lambda uid: asyncio.run_coroutine_threadsafe(crowd.gone(uid), loop).result(),
        lambda: None,
    )
    thread = threading.Thread(target=watch.follow, name="crowd", daemon=True)
    thread.start()
    await ended.wait()
    watch.closing.set()
    await http.close()


def run(place: Place, namespace: str | None, behaviour: Path, log: Path) -> None:
    """The life of the crowd's process; `log` gets all that it says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for its parent
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    asyncio.run(serve(place, namespace, behaviour))


@contextlib.contextmanager
def crowd(
    control_plane: ControlPlane, folder: Path, behaviour: Behaviour, namespace: str | None = None
) -> Iterator[Path]:
    """Workers of all pods of a namespace, or of all; yields the file of their behaviour."""
    file, log = folder / "behaviour.json", folder / "crowd.log"
    behaviour.write(file)
    process = NURSERY.Process(
        target=run, args=(control_plane.place, namespace, file, log), daemon=True
    )
    process.start()
    try:
        yield file
    finally:
        process.terminate()
        process.join(END_SECONDS)
        process.kill()
