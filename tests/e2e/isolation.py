"""Namespaces of its own for a whole node: network, mounts and control groups.

What a kubelet and containerd mount and write outside their folder lies on file systems that only
this run sees; all of it goes when its last process ends. Needs root. Knows nothing of what runs.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.kube import pod_network

CLONE_NEWNS = 0x00020000
BRIDGE, ADDRESS, PREFIX = "kb0", "10.77.0.1", 24
"""The node's own; nothing leads outside, but a kubelet refuses a loopback address."""
SCRATCH = ("/run", "/var/lib/cni", "/var/log")
"""Where programs of the node write whatever they are told."""
GROUPS = Path("/sys/fs/cgroup")
GROUP = "outrider-e2e"
"""The control group above all pods, in each hierarchy."""
SHARES = "cpu.shares"
INHERITED = ("cpuset.cpus", "cpuset.mems")


def enter() -> None:
    """Moves this process into new namespaces; raises `PodNetworkError` where there can be none."""
    if os.getuid() != 0:
        raise pod_network.PodNetworkError("a real node needs root: its pods are real containers")
    if pod_network.LIBC.unshare(pod_network.CLONE_NEWNET | CLONE_NEWNS) != 0:
        problem = os.strerror(ctypes.get_errno())
        raise pod_network.PodNetworkError(
            f"namespaces of network and mounts cannot be made: {problem}. In a container, run it"
            " with the capability SYS_ADMIN"
        )
    _mounts()
    _network()
    os.environ[pod_network.VARIABLE] = os.readlink("/proc/self/ns/net")


def _mounts() -> None:
    _run("mount", "--make-rprivate", "/")
    _run("mount", "--make-rshared", "/")  # among this run's own: pods see what is mounted later
    for folder in SCRATCH:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "outrider-e2e", folder)


def _network() -> None:
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/{PREFIX}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    _run("ip", "route", "add", "default", "via", ADDRESS, "dev", BRIDGE)  # kubelets want one
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if filtered.exists():  # pods reach Services through iptables from the bridge, too
        filtered.write_text("1")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise pod_network.PodNetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


def unmount(folder: Path) -> None:
    """Takes away what a kubelet and containerd left mounted below a folder; nobody uses it."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in reversed(points):
        if Path(point).is_relative_to(folder):
            _run("umount", "--lazy", point)


def make_groups() -> None:
    """The control group of all pods; what an earlier run left behind goes first."""
    remove_groups()
    for folder in _hierarchies():
        group = folder / GROUP
        group.mkdir(exist_ok=True)
        for name in INHERITED:
            if (group / name).exists():
                (group / name).write_text((folder / name).read_text())
        if (group / SHARES).exists():  # else all pods together weigh as much as one process
            (group / SHARES).write_text(str(1024 * (os.cpu_count() or 1)))


def remove_groups() -> None:
    """Removes the control groups; their processes have ended."""
    for folder in _hierarchies():
        for path, _, _ in os.walk(folder / GROUP, topdown=False):
            os.rmdir(path)


def _hierarchies() -> Iterator[Path]:
    """The root of the one hierarchy of cgroup v2, or of each of v1."""
    if (GROUPS / "cgroup.controllers").exists():
        yield GROUPS
        return
    for folder in sorted(GROUPS.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
            yield folder
