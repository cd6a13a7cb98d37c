"""A whole one-node cluster of real programs, whose pods are real containers.

    with node.started(folder) as control_plane:
        control_plane.kubectl("get", "nodes")

Runs inside `isolation`. Leaves configurations to `node_files`, and what runs on it to its user.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.e2e import image, isolation, machine, node_files
from tests.kube.control_plane import ControlPlane, write_user
from tests.kube.server_process import ServerProcess

READY_SECONDS = 180
SOCKET = Path("/run/outrider-e2e/containerd.sock")


@contextlib.contextmanager
def started(folder: Path) -> Iterator[ControlPlane]:
    """A control plane with one ready node; its servers end with it, its pods with the namespace.

    Raises `ServerEnded` with the end of its log where a program does not stay up.
    """
    with ControlPlane.started(folder, host=isolation.ADDRESS) as control_plane:
        _start(control_plane, folder / "node")
        wait = ("wait", "--for=condition=Ready", f"--timeout={READY_SECONDS}s")
        control_plane.kubectl(*_created(f"node/{node_files.NODE}"))
        control_plane.kubectl(*wait, f"node/{node_files.NODE}")
        yield control_plane


def _created(what: str) -> tuple[str, ...]:
    return ("wait", "--for=create", what, f"--timeout={READY_SECONDS}s")


def _start(control_plane: ControlPlane, folder: Path) -> None:
    for name in ("cni", "opt"):
        (folder / name).mkdir(parents=True)
    SOCKET.parent.mkdir()
    _start_containerd(control_plane, folder)
    _start_kubelet(control_plane, folder)
    proxy = control_plane.authority.client("system:kube-proxy")
    user = write_user(control_plane.place, "kube-proxy", proxy)
    _run(control_plane, "kube-proxy", node_files.proxy_arguments(user))


def _start_containerd(control_plane: ControlPlane, folder: Path) -> None:
    plugins = machine.plugins()
    assert plugins is not None, "the machine was checked"
    (folder / "cni" / "10-pods.conflist").write_text(node_files.network(folder))
    config = folder / "containerd.toml"
    config.write_text(node_files.containerd(folder, plugins, SOCKET))
    program = machine.program("containerd")
    arguments = [f"--config={config}", "--log-level=warn"]
    control_plane.servers["containerd"] = ServerProcess.start(program, arguments, folder)
    control_plane.wait_until(lambda: _ctr("version").returncode == 0, "an answer of containerd")
    sandbox = folder / "sandbox.tar"
    image.write(image.SANDBOX, image.WAIT, machine.program("busybox"), sandbox)
    load_image(sandbox)


def load_image(archive: Path) -> None:
    """Gives an image to the node."""
    imported = _ctr("images", "import", "--snapshotter=native", str(archive))
    if imported.returncode:
        raise RuntimeError(f"containerd does not take {archive.name}: {imported.stderr}")


def _ctr(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["ctr", f"--address={SOCKET}", "--namespace=k8s.io", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def _start_kubelet(control_plane: ControlPlane, folder: Path) -> None:
    place, authority = control_plane.place, control_plane.authority
    served = authority.server("kubelet", [node_files.NODE], [isolation.ADDRESS])
    config = node_files.kubelet(place, folder, SOCKET, served.certificate, served.key)
    (folder / "kubelet.yaml").write_text(config)
    (folder / "resolv.conf").write_text("")  # there is no DNS
    user = authority.client(f"system:node:{node_files.NODE}", "system:nodes")
    kubeconfig = write_user(place, f"system:node:{node_files.NODE}", user)
    _run(control_plane, "kubelet", node_files.kubelet_arguments(folder, kubeconfig))


def _run(control_plane: ControlPlane, name: str, arguments: list[str]) -> None:
    program = control_plane.place.assets / name
    server = ServerProcess.start(program, arguments, control_plane.folder)
    control_plane.servers[name] = server
