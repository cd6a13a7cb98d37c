"""A PodMonitor, for clusters that run Prometheus by its operator."""

import re

from outrider.operator.kinds import POD_MONITOR
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import POD_INDEX, SERVICE_LABEL, WORKER_INDEX

FOLLOWERS = {
    "action": "drop",
    "sourceLabels": [
        f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9]', '_', label)}"
        for label in (WORKER_INDEX, POD_INDEX)
    ],
    "regex": "[1-9][0-9]*;.*|;[1-9][0-9]*",
}
"""Leaves out the pods of a group that do not lead. In a LeaderWorkerSet's pods the second label is
the group's number."""


def monitor(owner: Owner, seconds: int, groups: bool) -> Object:
    """Reads `/metrics` of every worker that answers so often; `groups`: not all do."""
    endpoint: Object = {"port": "http", "path": "/metrics", "interval": f"{seconds}s"}
    if groups:
        endpoint["relabelings"] = [FOLLOWERS]
    spec = {
        "selector": {"matchLabels": {SERVICE_LABEL: owner.name}},
        "podMetricsEndpoints": [endpoint],
    }
    return child(POD_MONITOR, owner, owner.name, spec=spec)
