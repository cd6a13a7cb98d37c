"""Objects for other operators: a PodMonitor for Prometheus, an InferencePool for gateways."""

import re
from collections.abc import Mapping

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import INFERENCE_POOL, POD_MONITOR
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.manifests.containers import DRAFT_HTTP
from outrider.operator.naming import (
    DIGEST_ANNOTATION,
    POD_INDEX,
    SERVICE_LABEL,
    WORKER_INDEX,
    selector,
)
from outrider.operator.spec import EndpointPicker

FOLLOWERS = {
    "action": "drop",
    "sourceLabels": [
        f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9]', '_', label)}"
        for label in (WORKER_INDEX, POD_INDEX)
    ],
    "regex": "[1-9][0-9]*;.*|;[1-9][0-9]*",
}
"""Drops the pods of a group that do not lead. In a LeaderWorkerSet's pods the second label is the
group's number."""


def pod_monitor(
    owner: Owner, seconds: int, groups: bool, same_pod: bool, labels: Mapping[str, str]
) -> Object:
    """Return the PodMonitor that reads `/metrics` every so many seconds.

    `groups`: only the leaders of groups are read; `same_pod`: drafts in targets' pods too;
    `labels`: those by which a Prometheus picks its PodMonitors, beside the service's own.
    """
    ports = ("http", DRAFT_HTTP) if same_pod else ("http",)
    relabelings = {"relabelings": [FOLLOWERS]} if groups else {}
    spec = {
        "selector": {"matchLabels": {SERVICE_LABEL: owner.name}},
        "podMetricsEndpoints": [
            {"port": port, "path": "/metrics", "interval": f"{seconds}s", **relabelings}
            for port in ports
        ],
    }
    made = child(POD_MONITOR, owner, owner.name, spec=spec)
    if labels:
        meta = made["metadata"]
        meta["labels"] = {**labels, **meta["labels"]}
        meta["annotations"] = {DIGEST_ANNOTATION: digest([spec, sorted(labels.items())])}
    return made


def inference_pool(
    owner: Owner, picker: EndpointPicker, leader_labels: Mapping[str, str]
) -> Object:
    """Return the InferencePool of the targets that answer; `leader_labels` are their labels beside
    those of the role. Its v1 needs the name of an endpoint picker, which the user runs."""
    reference = {
        "group": "",
        "kind": "Service",
        "name": picker.name,
        "port": {"number": picker.port},
        "failureMode": picker.failure_mode.value,
    }
    spec = {
        "selector": {"matchLabels": {**selector(owner.name, Role.TARGET), **leader_labels}},
        "targetPorts": [{"number": HTTP_PORT}],
        "endpointPickerRef": reference,
    }
    return child(INFERENCE_POOL, owner, owner.name, spec=spec)
