"""Kubernetes' own servers for tests: found on this machine, or made from pinned sources.

    folder = kube_assets.folder("core", "control")  # holds kube-apiserver, etcd, kubectl, kwok, ...

Leaves starting them to whoever asked. Uses the standard library alone, so that a bare Python can
run it: `python -m tools.kube_assets`.
"""

from tools.kube_assets.making import folder, found
from tools.kube_assets.pins import SETS, AssetsError

__all__ = ["SETS", "AssetsError", "folder", "found"]
