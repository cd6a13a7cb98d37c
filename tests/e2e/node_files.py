"""What the programs of a node are configured with, as data.

Leaves starting them to `node`.
"""

import json
from pathlib import Path

from tests.e2e.image import SANDBOX
from tests.e2e.isolation import ADDRESS, GROUP
from tests.kube.servers import Place

PODS = "10.88.0.0/24"
NODE = "node-0"


def network(folder: Path) -> str:
    """Pods hang on a bridge and get addresses of `PODS`."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(folder / "addresses"),
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})


def containerd(folder: Path, plugins: Path, socket: Path) -> str:
    """A containerd that touches nothing outside `folder` and /run."""
    return f"""version = 2
root = "{folder / "containerd"}"
state = "/run/outrider-e2e/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX}"
  disable_apparmor = true
  # In a container without the capability SYS_RESOURCE runc may not lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native" # overlays do not lie on every file system; these images have 2 MB
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def kubelet(at: Place, folder: Path, socket: Path, certificate: Path, key: Path) -> str:
    """A kubelet that evicts nothing and keeps its pods below one control group."""
    client = {"clientCAFile": str(at.authority.certificate)}
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{GROUP}",
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{socket}",
        "address": ADDRESS,
        "healthzBindAddress": "127.0.0.1",
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": client,
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "resolvConf": str(folder / "resolv.conf"),
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "5s",
    }
    return json.dumps(config)  # JSON is YAML


def kubelet_arguments(folder: Path, kubeconfig: Path) -> list[str]:
    """The command line beside its configuration."""
    return [
        f"--config={folder / 'kubelet.yaml'}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={folder / 'kubelet'}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
    ]


def proxy_arguments(kubeconfig: Path) -> list[str]:
    """Services by iptables; connection tracking is left as the machine has it."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={PODS}",
        "--conntrack-max-per-core=0",
        "--healthz-bind-address=127.0.0.1:10256",
        "--metrics-bind-address=127.0.0.1:10249",
    ]
