"""The real controller of LeaderWorkerSets, with its own definition, permissions and webhooks.

    with LeaderWorkerSets.running(control_plane, folder) as controller:
        ...

It is a service account with the permissions that its project gives it. What differs from a cluster
is that the API server calls its webhooks at an address, and that their certificate is signed by the
control plane's authority. Leaves making the program to `tools.kube_assets`.
"""

import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tools.kube_assets.pins import LWS

from outrider.operator.cluster.kinds import LEADER_WORKER_SET
from tests.kube.control_plane import ControlPlane, KubectlError, free_ports
from tests.kube.server_process import ServerProcess
from tests.kube.servers import HOST

Object = dict[str, Any]
NAMESPACE, ACCOUNT = "lws-system", "lws-controller-manager"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
DEFINITION = f"{LEADER_WORKER_SET.plural}.{LEADER_WORKER_SET.group}"


@dataclass(frozen=True, slots=True)
class LeaderWorkerSets:
    """One running controller."""

    control_plane: ControlPlane
    role: str
    """Name of the ClusterRole that its account is bound to."""

    @classmethod
    @contextlib.contextmanager
    def running(cls, control_plane: ControlPlane, folder: Path) -> "Iterator[LeaderWorkerSets]":
        """Until the end of the block, after which the cluster knows its kind no longer."""
        objects = _objects(control_plane)
        sets = cls(control_plane, str(objects["ClusterRole"]["metadata"]["name"]))
        (port,) = free_ports(1)
        for what in (("namespace", NAMESPACE), ("serviceaccount", ACCOUNT, "-n", NAMESPACE)):
            made = control_plane.kubectl("create", *what, "--dry-run=client", "-o", "json")
            control_plane.kubectl("apply", "-f", "-", stdin=made)  # both stay for another module
        # `apply` would keep a copy of the definition in an annotation, for which it is too large.
        definition = json.dumps(objects["CustomResourceDefinition"])
        control_plane.kubectl("create", "-f", "-", stdin=definition)
        control_plane.apply(objects["ClusterRole"])
        sets.permit()
        try:
            control_plane.servers[LWS] = _started(control_plane, folder, port)
            control_plane.apply(*(_calling(objects[k], control_plane, port) for k in WEBHOOKS))
            control_plane.wait_until(lambda: sets.answers, "webhooks of LeaderWorkerSets answer")
            yield sets
        finally:
            sets._end(objects)

    @property
    def answers(self) -> bool:
        """Whether its webhooks admit a pod and a LeaderWorkerSet."""
        spec = {"serviceAccountName": ACCOUNT, "containers": [{"name": "any", "image": "any"}]}
        template = {"size": 1, "workerTemplate": {"spec": spec}}
        samples: tuple[Object, ...] = (
            {"apiVersion": "v1", "kind": "Pod", "spec": spec},
            {
                "apiVersion": LEADER_WORKER_SET.api_version,
                "kind": LEADER_WORKER_SET.name,
                "spec": {"leaderWorkerTemplate": template},
            },
        )
        for sample in samples:
            text = json.dumps({**sample, "metadata": {"name": "any"}})
            try:
                asked = ("create", "--dry-run=server", "-n", NAMESPACE, "-f", "-")
                self.control_plane.kubectl(*asked, stdin=text)
            except KubectlError:
                return False
        return True

    def permit(self) -> None:
        """Let it do its work."""
        kubectl = self.control_plane.kubectl
        bound = (f"--clusterrole={self.role}", f"--serviceaccount={NAMESPACE}:{ACCOUNT}")
        kubectl("create", "clusterrolebinding", ACCOUNT, *bound)
        self.control_plane.wait_until(self._may, "it is permitted")

    def forbid(self) -> None:
        """Let it do nothing from now on; its webhooks answer as before."""
        self.control_plane.kubectl("delete", "clusterrolebinding", ACCOUNT)
        self.control_plane.wait_until(lambda: not self._may(), "it is forbidden")

    def _may(self) -> bool:
        """Whether it may change StatefulSets."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": USER,
                "resourceAttributes": {
                    "group": "apps",
                    "resource": "statefulsets",
                    "verb": "patch",
                    "namespace": "default",
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        with self.control_plane.open(path, 30, "POST", review) as answer:
            return bool(json.load(answer)["status"]["allowed"])

    def _end(self, objects: dict[str, Object]) -> None:
        kubectl = self.control_plane.kubectl
        for kind in WEBHOOKS:  # first: without their server no pod would be admitted
            name = objects[kind]["metadata"]["name"]
            kubectl("delete", kind, str(name), "--ignore-not-found")
        kubectl("delete", "crd", DEFINITION)
        if server := self.control_plane.servers.pop(LWS, None):
            server.kill()
        kubectl("delete", "clusterrolebinding", ACCOUNT, "--ignore-not-found")
        kubectl("delete", "clusterrole", self.role)


def _objects(control_plane: ControlPlane) -> dict[str, Object]:
    """What its project ships, by kind."""
    text = (control_plane.place.assets / f"{LWS}.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


def _calling(webhooks: Object, control_plane: ControlPlane, port: int) -> Object:
    """Webhooks that are at a port of this machine instead of behind a Service."""
    authority = base64.b64encode(control_plane.place.authority.certificate.read_bytes()).decode()
    for one in webhooks["webhooks"]:
        path = one["clientConfig"].pop("service")["path"]
        one["clientConfig"] |= {"url": f"https://{HOST}:{port}{path}", "caBundle": authority}
    return webhooks


def _started(control_plane: ControlPlane, folder: Path, port: int) -> ServerProcess:
    pair = control_plane.authority.server("lws-webhooks", ["localhost"], [HOST])
    shutil.copy(pair.certificate, folder / "tls.crt")
    shutil.copy(pair.key, folder / "tls.key")
    configuration = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": HOST, "port": port, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    file = folder / "configuration.yaml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    user = control_plane.user_kubeconfig(ACCOUNT, NAMESPACE)
    arguments = [f"--config={file}", f"--kubeconfig={user}"]
    return ServerProcess.start(control_plane.place.assets / LWS, arguments, control_plane.folder)
