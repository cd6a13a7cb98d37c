"""A control plane of an older minor version of Kubernetes, out of a module of its own.

API server, controller manager and scheduler are of that version, because newer ones ask an older
API server for what it does not have. Store, clients and kwok are those of every other run. Leaves
building to `making`.
"""

import os
from pathlib import Path

from tools.kube_assets import finding, installed, making
from tools.kube_assets.pins import OLDER, SETS, AssetsError
from tools.kube_assets.progress import Progress

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""What is built anew for each version."""
UNAVAILABLE = SETS["node"]
"""A node's programs: no older ones are built."""


def folder(minor: str, *sets: str) -> Path:
    """A folder of links to every file of the sets, the servers among them those of `minor`.

    Makes what is missing. Raises `AssetsError` where a set has programs of a node, and where
    something cannot be had.
    """
    wanted = finding.names(sets)
    if nodes := [name for name in wanted if name in UNAVAILABLE]:
        raise AssetsError(f"there is no {' and no '.join(nodes)} of {minor}: leave out their set")
    progress = Progress()
    own = [name for name in wanted if name in CONTROL_PLANE]
    rest = [name for name in wanted if name not in CONTROL_PLANE]
    older = finding.cache(os.environ, Path.home(), OLDER[minor])
    making.filled(older, own, progress, OLDER[minor])
    newest = making.filled(finding.cache(os.environ, Path.home()), rest, progress)
    files = {name: older if name in own else newest for name in wanted}
    return installed.linked(older / f"all-{newest.name}", files)
