"""A real control plane on loopback: etcd, kube-apiserver, and what makes pods ready on fake nodes.

    with ControlPlane.started(folder) as control_plane:
        control_plane.kubectl("get", "nodes")

Runs inside a `pod_network`. Leaves the servers' options to `servers` and the programs to
`tools.kube_assets`.
"""

import base64
import contextlib
import dataclasses
import functools
import http
import json
import socket
import ssl
import subprocess
import time
import typing
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path

from tools import kube_assets
from tools.kube_assets.pins import STAGES

from outrider.client import DeadlineExceeded, Unavailable
from tests.kube import pod_network
from tests.kube.certificates import Authority, KeyPair, signing_key
from tests.kube.server_process import ServerProcess
from tests.kube.servers import (
    API_ADDRESSES,
    API_NAMES,
    CONTROLLERS,
    HOST,
    STORE,
    Place,
    stages,
)

START_SECONDS = 120.0
KUBECTL_SECONDS = 120.0
MIN_PAUSE, MAX_PAUSE = 0.05, 0.1
"""Seconds between two looks at what is waited for, most of which are a request over a new
connection."""
SILENT = (Unavailable, DeadlineExceeded)
"""What asking a worker raises that does not answer now."""
ADMIN = "admin"
NAMESPACES = "/api/v1/namespaces"
COMPONENTS = ("system:kube-controller-manager", "system:kube-scheduler")


class KubectlError(RuntimeError):
    """kubectl refused; the message is what it said."""


@dataclass(slots=True)
class ControlPlane:
    """One running control plane."""

    place: Place
    authority: Authority
    """Signs the certificates of further programs."""
    servers: dict[str, ServerProcess] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def started(
        cls,
        folder: Path,
        controllers: bool = True,
        host: str = HOST,
        api_options: tuple[str, ...] = (),
    ) -> "Iterator[ControlPlane]":
        """A control plane whose files lie in `folder`; without controllers it only keeps objects.

        With a `host` that pods can reach, nodes are real: nothing makes pods ready but a kubelet.
        Raises `ServerEnded` with the end of its log if a server does not stay up.
        """
        if not pod_network.inside():
            raise pod_network.PodNetworkError(
                "a control plane runs inside a pod network: python -m tests.kube.pod_network ..."
            )
        authority = Authority(folder / "certificates")
        place = dataclasses.replace(_place(folder, authority, host), api_options=api_options)
        control_plane = cls(place, authority)
        try:
            control_plane._start(STORE)
            control_plane.wait_until(control_plane._is_ready, "/readyz of kube-apiserver")
            if controllers:
                left_out = () if host == HOST else ("kwok",)
                control_plane._start({n: c for n, c in CONTROLLERS.items() if n not in left_out})
                control_plane.wait_for_account("default")
            yield control_plane
        finally:
            for server in reversed(control_plane.servers.values()):
                server.kill()

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return self.place.kubeconfig(ADMIN)

    @property
    def folder(self) -> Path:
        """Where certificates, kubeconfigs and logs lie."""
        return self.place.folder

    def check(self) -> None:
        """Raises `ServerEnded` if any server has ended."""
        for server in self.servers.values():
            server.check()

    def minor_version(self) -> int:
        """Minor version of the API server."""
        version = json.loads(self.kubectl("get", "--raw", "/version"))
        return int(version["minor"].rstrip("+"))

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """What kubectl prints, as the administrator or another user.

        Raises `KubectlError` with its stderr, or `ServerEnded` where a server is gone.
        """
        cache = f"--cache-dir={self.folder / 'kubectl-cache'}"
        user = f"--kubeconfig={kubeconfig or self.kubeconfig}"
        return self._run("kubectl", user, cache, *arguments, stdin=stdin)

    def helm(self, *arguments: str, stdin: str | None = None) -> str:
        """What helm prints; errors as those of `kubectl`."""
        return self._run("helm", f"--kubeconfig={self.kubeconfig}", *arguments, stdin=stdin)

    def _run(self, program: str, *arguments: str, stdin: str | None) -> str:
        self.check()
        done = subprocess.run(
            [self.place.assets / program, *arguments],
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
        )
        if done.returncode:
            self.check()
            raise KubectlError(done.stderr.strip() or f"{program} ended with {done.returncode}")
        return done.stdout

    def apply(self, *objects: Mapping[str, object]) -> None:
        """Creates or changes objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def open(
        self,
        path: str,
        timeout: float,
        method: str = "GET",
        body: object = None,
        content: str = "application/json",
    ) -> HTTPResponse:
        """Answer of the API server to the administrator; raises what `urllib.request` does."""
        context = _context(self.place.authority.certificate, self.place.admin)
        asked = urllib.request.Request(
            f"{self.place.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content},
        )
        return typing.cast(
            HTTPResponse, urllib.request.urlopen(asked, context=context, timeout=timeout)
        )

    def user_kubeconfig(self, service_account: str, namespace: str = "default") -> Path:
        """A file with which a program has a service account's permissions and no others."""
        token = self.kubectl("create", "token", service_account, "-n", namespace).strip()
        file = self.place.kubeconfig(f"{namespace}-{service_account}")
        return _write_kubeconfig(self.place, file, {"token": token}, namespace)

    def create_namespace(self, name: str) -> None:
        """One in which pods may be made at once; by a request, for kubectl costs more than that."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.open(NAMESPACES, KUBECTL_SECONDS, "POST", body).close()
        self.wait_for_account(name)

    def delete_namespace(self, name: str) -> None:
        """Asks for its deletion; waits for nothing."""
        self.open(f"{NAMESPACES}/{name}", KUBECTL_SECONDS, "DELETE").close()

    def wait_for_account(self, namespace: str) -> None:
        """Pods of a namespace are refused until its service account `default` is there."""
        account = f"{NAMESPACES}/{namespace}/serviceaccounts/default"
        self.wait_until(lambda: self._is_there(account), f"the account of {namespace}")

    def wait_until(
        self, holds: Callable[[], bool], what: str, seconds: float = START_SECONDS
    ) -> None:
        """Polls until `holds`; a server that ends meanwhile raises `ServerEnded`. A worker that is
        asked and does not answer may be between two lives, and is asked again."""
        began = time.monotonic()
        while True:
            problem = ""
            try:
                if holds():
                    return
            except SILENT as error:
                problem = f": {error}"
            self.check()
            waited = time.monotonic() - began
            if waited > seconds:
                raise AssertionError(f"not within {seconds} s: {what}{problem}")
            time.sleep(min(max(MIN_PAUSE, waited / 20), MAX_PAUSE))

    def _start(self, commands: Mapping[str, Callable[[Place], list[str]]]) -> None:
        for name, arguments in commands.items():
            program = self.place.assets / name
            self.servers[name] = ServerProcess.start(program, arguments(self.place), self.folder)

    def _is_there(self, path: str) -> bool:
        try:
            self.open(path, KUBECTL_SECONDS).close()
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _is_ready(self) -> bool:
        try:
            with self.open("/readyz", timeout=5):
                return True
        except (urllib.error.URLError, TimeoutError):
            return False


@functools.cache
def _context(authority: Path, user: KeyPair) -> ssl.SSLContext:
    """Made once: it takes as long as a request."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(user.certificate, user.key)
    return context


def _place(folder: Path, authority: Authority, host: str) -> Place:
    """Certificates, free ports and kubeconfigs in a new folder."""
    etcd, peers, api = free_ports(3)
    place = Place(
        folder=folder,
        assets=kube_assets.folder(*pod_network.SETS),
        etcd_port=etcd,
        etcd_peer_port=peers,
        api_port=api,
        authority=authority.pair,
        api=authority.server("kube-apiserver", API_NAMES, [*API_ADDRESSES, host]),
        admin=authority.client(ADMIN, "system:masters"),
        tokens=signing_key(authority.folder),
        host=host,
    )
    (folder / STAGES).write_text(stages((place.assets / STAGES).read_text()))
    users = {ADMIN: place.admin} | {name: authority.client(name) for name in COMPONENTS}
    for name, pair in users.items():
        write_user(place, name, pair)
    return place


def write_user(place: Place, name: str, pair: KeyPair) -> Path:
    """A file with which a program is the user of a certificate."""
    return _write_kubeconfig(place, place.kubeconfig(name), _certificate(pair), "default")


def free_ports(count: int) -> list[int]:
    """So many ports of the loopback address that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind((HOST, 0))
        return [int(s.getsockname()[1]) for s in sockets]


def _certificate(pair: KeyPair) -> dict[str, str]:
    return {
        "client-certificate-data": _encoded(pair.certificate),
        "client-key-data": _encoded(pair.key),
    }


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _write_kubeconfig(place: Place, file: Path, user: Mapping[str, str], namespace: str) -> Path:
    cluster = {
        "server": place.url,
        "certificate-authority-data": _encoded(place.authority.certificate),
    }
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": dict(user)}],
        "contexts": [{"name": "test", "context": context}],
    }
    file.write_text(json.dumps(config))  # JSON is YAML
    file.chmod(0o600)
    return file
