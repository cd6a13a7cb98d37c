"""What a real node needs of this machine, and which machine it is.

Only looks; leaves installing to whoever reads the message.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

from bench.record.provenance import on
from outrider.cli.machine.info import machine

PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
"""Programs and the Debian packages that hold them."""
PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
"""Where distributions put the plugins of containernetworking."""
PLUGIN_NAMES = ("bridge", "host-local", "loopback", "portmap")
PLUGIN_PACKAGE = "containernetworking-plugins"


class MachineError(RuntimeError):
    """This machine can run no node; the message says what is missing and how to get it."""


def check() -> None:
    """Raises `MachineError` where a real node cannot run."""
    if sys.platform != "linux" or os.getuid() != 0:
        raise MachineError(f"a real node needs Linux and root; this is {sys.platform}")
    lacking = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if plugins() is None:
        lacking.append(PLUGIN_PACKAGE)
    if lacking:
        raise MachineError(
            f"not installed: {', '.join(lacking)}. On Debian or Ubuntu:\n"
            f"  apt-get install --no-install-recommends {' '.join(lacking)}"
        )


def plugins() -> Path | None:
    """The folder of the network plugins; None: there is none."""
    folders = (Path(folder) for folder in PLUGINS)
    return next((f for f in folders if all((f / n).exists() for n in PLUGIN_NAMES)), None)


def program(name: str) -> Path:
    """Where a program of `PROGRAMS` is."""
    found = shutil.which(name)
    if found is None:
        raise MachineError(f"{name} is not installed: package {PROGRAMS[name]}")
    return Path(found)


def description() -> str:
    """The machine in one line, its instruction sets among it."""
    facts = machine()
    return f"{on(facts)}, Linux {platform.release()}, Python {facts['python']}"
