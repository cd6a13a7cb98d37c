"""Command lines of the servers of a control plane, as data.

Leaves starting them, and in what order, to `control_plane`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.kube_assets.pins import STAGES

from tests.kube.certificates import KeyPair
from tests.kube.pod_network import POD_RANGE

HOST = "127.0.0.1"
SERVICE_RANGE = "10.0.0.0/16"
API_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
API_ADDRESSES = (HOST, "10.0.0.1")
TAKEN = "    finalizers:\n      empty: true\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one control plane keeps and finds things."""

    folder: Path
    assets: Path
    etcd_port: int
    etcd_peer_port: int
    api_port: int
    authority: KeyPair
    api: KeyPair
    admin: KeyPair
    tokens: KeyPair
    host: str = HOST
    """Where the API server listens: an address that pods reach, where there are real ones."""
    api_options: tuple[str, ...] = ()
    """Further options of the API server."""

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://{self.host}:{self.api_port}"

    def kubeconfig(self, name: str) -> Path:
        """File of a user."""
        return self.folder / f"{name}.kubeconfig"


def etcd(at: Place) -> list[str]:
    """The store; it forgets all when it is killed, which is what makes it quick."""
    client, peer = f"http://{HOST}:{at.etcd_port}", f"http://{HOST}:{at.etcd_peer_port}"
    return [
        "--name=test",
        f"--data-dir={at.folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
    ]


def kube_apiserver(at: Place) -> list[str]:
    """The API, with the authorisation of a real cluster."""
    return [
        f"--etcd-servers=http://{HOST}:{at.etcd_port}",
        f"--bind-address={at.host}",
        f"--advertise-address={at.host}",
        f"--secure-port={at.api_port}",
        # The others refuse a loopback address; without one, pods have no API server.
        f"--endpoint-reconciler-type={'none' if at.host == HOST else 'lease'}",
        f"--tls-cert-file={at.api.certificate}",
        f"--tls-private-key-file={at.api.key}",
        f"--client-ca-file={at.authority.certificate}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={at.tokens.certificate}",
        f"--service-account-signing-key-file={at.tokens.key}",
        f"--kubelet-client-certificate={at.admin.certificate}",
        f"--kubelet-client-key={at.admin.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        *at.api_options,
    ]


def kube_controller_manager(at: Place) -> list[str]:
    """Deployments, StatefulSets, autoscalers, owners' deletion, service accounts."""
    return [
        *_as_user(at, "system:kube-controller-manager"),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={at.tokens.key}",
        f"--root-ca-file={at.authority.certificate}",
        f"--cluster-signing-cert-file={at.authority.certificate}",
        f"--cluster-signing-key-file={at.authority.key}",
        "--kube-api-qps=400",
        "--kube-api-burst=800",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--node-monitor-grace-period=24h",  # kwok says once that its nodes are ready
    ]


def kube_scheduler(at: Place) -> list[str]:
    """Gives pods their nodes."""
    return _as_user(at, "system:kube-scheduler")


def kwok(at: Place) -> list[str]:
    """Stands for the kubelets: pods get addresses, run and become ready without containers."""
    return [
        f"--config={at.folder / STAGES}",
        f"--kubeconfig={at.kubeconfig('admin')}",
        "--manage-all-nodes=true",
        f"--cidr={POD_RANGE.network_address + 1}/{POD_RANGE.prefixlen}",
        f"--server-address={HOST}:0",
    ]


def stages(shipped: str) -> str:
    """What kwok does to pods and nodes, but that it takes no finalizers away. A kubelet takes none:
    a pod that is deleted in the foreground goes after what it owns."""
    assert TAKEN in shipped
    return shipped.replace(TAKEN, "")


def _as_user(at: Place, user: str) -> list[str]:
    file = at.kubeconfig(user)
    return [
        f"--kubeconfig={file}",
        f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}",
        f"--bind-address={HOST}",
        "--secure-port=0",
        "--leader-elect=false",
        "--profiling=false",
    ]


STORE: dict[str, Callable[[Place], list[str]]] = {"etcd": etcd, "kube-apiserver": kube_apiserver}
"""What an API server needs."""
CONTROLLERS: dict[str, Callable[[Place], list[str]]] = {
    "kube-controller-manager": kube_controller_manager,
    "kube-scheduler": kube_scheduler,
    "kwok": kwok,
}
"""What makes pods of Deployments, and makes them ready."""
