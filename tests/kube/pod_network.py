"""Runs a command in a network namespace of its own, in which every address of the pods is local.

    python -m tests.kube.pod_network python -m pytest tests/kube

There a fake worker listens on its pod's own address, an operator finds it there, and nothing leads
outside. When the command ends, every process that it left behind is ended too. Needs Linux, and
root or user namespaces; leaves servers and pods to `control_plane`.
"""

import ctypes
import fcntl
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import kube_assets

POD_RANGE = ipaddress.IPv4Network("10.64.0.0/16")
SETS = ("core", "control", "helm", "lws", "epp")
"""Sets of assets, of the version of Kubernetes that is asked for, that are made before the way
outside is cut."""
OF_ANY_VERSION = ("rules",)
"""Sets of assets, of any version of Kubernetes, that are made before the way outside is cut."""
VARIABLE = "OUTRIDER_POD_NETWORK"
"""Holds the namespace's name for those who run in it."""
GRACE_SECONDS = 30

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
IFF_UP = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class PodNetworkError(RuntimeError):
    """There can be no such namespace here; the message says what would help."""


def inside() -> bool:
    """Whether this process runs in such a namespace."""
    return os.environ.get(VARIABLE) == _name()


def _name() -> str | None:
    try:
        return os.readlink("/proc/self/ns/net")
    except FileNotFoundError:  # not Linux
        return None


def enter() -> None:
    """Moves this process, which must have one thread, into a new one; raises `PodNetworkError`."""
    if sys.platform != "linux":
        raise PodNetworkError(f"network namespaces need Linux; this is {sys.platform}")
    _unshare()
    _configure("lo", SIOCSIFFLAGS, struct.pack("H", IFF_UP))
    # A loopback device answers for the whole range of any address that it has.
    _configure("lo:pods", SIOCSIFADDR, _address(POD_RANGE.network_address + 1))
    _configure("lo:pods", SIOCSIFNETMASK, _address(POD_RANGE.netmask))
    os.environ[VARIABLE] = str(_name())


def answer_for(address: str) -> None:
    """Makes one more address local: that of a Service, which no proxy leads to its pods here."""
    _configure("lo:service", SIOCSIFADDR, _address(ipaddress.IPv4Address(address)))
    _configure("lo:service", SIOCSIFNETMASK, _address(ipaddress.IPv4Address("255.255.255.255")))


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWNET) == 0:
        return
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise PodNetworkError(
            "a network namespace is needed and cannot be made: "
            f"{os.strerror(ctypes.get_errno())}. Run as root (in a container: with the capability "
            "SYS_ADMIN), or allow user namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
        )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _address(address: ipaddress.IPv4Address) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, address.packed)


def _configure(interface: str, request: int, value: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, request, struct.pack("16s24s", interface.encode(), value))


def run(command: Sequence[str], enter: Callable[[], None] = enter) -> int:
    """Runs it in a new namespace; its exit code, once all that it started has ended.

    SIGTERM, SIGINT and the end of the parent interrupt it as Ctrl-C would; what does not end within
    `GRACE_SECONDS` is killed.
    """
    # Servers that lost their parent come to this process, which ends them.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    end_with_parent()
    enter()
    child = subprocess.Popen(command, close_fds=False)  # what was passed to this one is for it

    def interrupt(number: int, frame: object) -> None:
        signal.alarm(GRACE_SECONDS)
        child.send_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, lambda number, frame: child.kill())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        code = child.wait()
    finally:
        _end_descendants()
    return code if code >= 0 else 128 - code


def end_with_parent() -> None:
    """From now on SIGTERM, SIGINT and the end of the parent raise `KeyboardInterrupt`."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):  # a background job is born deaf to the latter
        signal.signal(number, signal.default_int_handler)


def _end_descendants() -> None:
    """Whatever is left becomes a child of this process, one generation at a time."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> int:
    """Exit code of the command; 1 and one message where there can be no namespace."""
    if len(sys.argv) < 2:
        print("usage: python -m tests.kube.pod_network COMMAND...", file=sys.stderr)
        return 2
    try:
        end_with_parent()  # also while servers are made, which takes minutes
        os.environ["KUBEBUILDER_ASSETS"] = str(kube_assets.folder(*SETS))
        kube_assets.folder(*OF_ANY_VERSION)
        return run(sys.argv[1:])
    except (kube_assets.AssetsError, PodNetworkError) as error:
        print(f"tests/kube: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
