"""Fake workers of very many pods in one process, each on its own pod's address.

    with crowd(control_plane, tmp_path, Behaviour()) as behaviour:
        hang(behaviour, ["chat"])

For tests of size: a process for each pod would not fit. Says what `fake_worker` says; leaves out
what needs a process of its own: files that a pod mounts, drains, ends and new lives.
"""

import asyncio
import contextlib
import json
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
from typing import Any, cast

from grpc import aio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contract.process import CONTROL_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.operator.naming import SERVICE_LABEL
from outrider.protos.v1 import control_pb2_grpc
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.server import HttpServer, listen
from outrider.worker.messages import LinkState, LinkStatus
from tests.kube.behaviour import Behaviour, stamp
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

    def statuses(self, refuses: str) -> tuple[LinkStatus, ...]:
        """One for each wanted draft."""
        return tuple(self._status(address) for address in self._wanted)

    def _status(self, address: str) -> LinkStatus:
        draft = self._workers.get(address.rpartition(":")[0])
        if draft is None:
            return LinkStatus(address)
        return LinkStatus(address, LinkState.UP, incarnation=draft.incarnation)


def hang(behaviour: Path, services: Sequence[str]) -> None:
    """Has the workers of these services take connections and answer nothing, and no others."""
    file = _hanging(behaviour)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(list(services)))
    new.replace(file)


def _hanging(behaviour: Path) -> Path:
    return behaviour.with_name("hanging.json")


class Hanging:
    """The services whose workers answer nothing, by a file that is read again when it changes."""

    def __init__(self, behaviour: Path) -> None:
        self._file = _hanging(behaviour)
        self._stamp: tuple[int, int] | None = None
        self._services: frozenset[str] = frozenset()

    async def wait(self, service: str) -> None:
        """Waits for ever if a service hangs."""
        if self._file.exists() and stamp(self._file) != self._stamp:
            self._stamp = stamp(self._file)
            self._services = frozenset(json.loads(self._file.read_text()))
        if service in self._services:
            await asyncio.Event().wait()


class HangingCalls(aio.ServerInterceptor):
    """Lets no call through to a worker while its service hangs."""

    def __init__(self, hanging: Hanging, service: str) -> None:
        self._hanging, self._service = hanging, service

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Waits before the call begins, until its client gives up."""
        await self._hanging.wait(self._service)
        return await continuation(details)


class Crowd:
    """The workers of all pods that run, by their addresses."""

    def __init__(self, behaviour: Path) -> None:
        self._behaviour = behaviour
        self._hanging = Hanging(behaviour)
        self._services: dict[str, str] = {}
        self._workers: dict[str, FakeWorker] = {}
        self._applications: dict[str, ASGIApp] = {}
        self._servers: dict[str, aio.Server] = {}
        self._addresses: dict[str, str] = {}
        """By the pods' uids."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP on all addresses, answered by the worker of the one that was asked."""
        address = scope["server"][0]
        await self._hanging.wait(self._services.get(address, ""))
        application = self._applications.get(address, NOBODY)
        await application(scope, receive, send)

    async def there(self, pod: Pod) -> None:
        """A pod is there, or has changed: its worker starts once it runs."""
        uid, status = pod["metadata"]["uid"], pod.get("status", {})
        if uid in self._addresses or status.get("phase") != "Running" or not status.get("podIP"):
            return
        address = self._addresses[uid] = str(status["podIP"])
        worker = self._worker(pod)
        service = self._services[address] = pod["metadata"]["labels"].get(SERVICE_LABEL, "")
        hanging = HangingCalls(self._hanging, service)
        server = aio.server(interceptors=[hanging], options=[("grpc.so_reuseport", 0)])
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
            del self._workers[address], self._applications[address], self._services[address]
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
