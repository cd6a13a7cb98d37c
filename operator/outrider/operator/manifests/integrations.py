"""Objects for other operators: a PodMonitor for Prometheus, an InferencePool for gateways."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import INFERENCE_POOL, POD_MONITOR
from outrider.operator.manifests.child import Object, child
from outrider.operator.manifests.containers import DRAFT_HTTP
from outrider.operator.naming import (
    DIGEST_ANNOTATION,
    ROLE_LABEL,
    SERVICE_LABEL,
    WORKER_INDEX,
    selector,
)
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.surroundings import EndpointPicker

PICKER_PORT = 9002
"""Port of an endpoint picker's Service."""


def _meta(label: str) -> str:
    """Return the name by which Prometheus knows a pod's label."""
    return f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9]', '_', label)}"


SERVICE_NAME = {
    "action": "replace",
    "sourceLabels": [_meta(SERVICE_LABEL)],
    "targetLabel": "service",
}
"""Gives each series the label `service`, as the operator's own have it."""
FOLLOWERS = {
    "action": "drop",
    "sourceLabels": [_meta(WORKER_INDEX)],
    "regex": "[1-9][0-9]*",
}
"""Drops the pods of a group that do not lead."""


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A port of pods at which metrics are."""

    port: str
    role: Role | None = None
    """Role of the pods; None: all."""
    tls: bool = False


def endpoints(roles: Sequence[Role], *, same_pod: bool, tls: bool) -> tuple[MetricsEndpoint, ...]:
    """Return where the metrics of a service are, whose pods have these roles; `same_pod`: drafts
    are in targets' pods; `tls`: targets speak it."""
    found: tuple[MetricsEndpoint, ...] = (MetricsEndpoint("http"),)
    if tls:  # of drafts has the same name, and speaks none
        found = tuple(MetricsEndpoint("http", role, tls=role is Role.TARGET) for role in roles)
    return (*found, MetricsEndpoint(DRAFT_HTTP)) if same_pod else found


def pod_monitor(
    owner: Owner,
    seconds: int,
    groups: bool,
    endpoints: Sequence[MetricsEndpoint],
    labels: Mapping[str, str],
) -> Object:
    """Return the PodMonitor that reads `/metrics` every so many seconds.

    `groups`: only the leaders of groups are read; `labels`: those by which a Prometheus picks its
    PodMonitors, beside the service's own.
    """
    spec = {
        "selector": {"matchLabels": {SERVICE_LABEL: owner.name}},
        "podMetricsEndpoints": [_endpoint(one, seconds, groups) for one in endpoints],
    }
    made = child(POD_MONITOR, owner, owner.name, spec=spec)
    if labels:
        meta = made["metadata"]
        meta["labels"] = {**labels, **meta["labels"]}
        meta["annotations"] = {DIGEST_ANNOTATION: digest([spec, sorted(labels.items())])}
    return made


def _endpoint(endpoint: MetricsEndpoint, seconds: int, groups: bool) -> Object:
    found: Object = {"port": endpoint.port, "path": "/metrics", "interval": f"{seconds}s"}
    if endpoint.tls:  # that certificate is for clients and their names
        found |= {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    role = endpoint.role
    own = [{"action": "keep", "sourceLabels": [_meta(ROLE_LABEL)], "regex": role}] if role else []
    return found | {"relabelings": [SERVICE_NAME, *own, *([FOLLOWERS] if groups else [])]}


def inference_pool(
    owner: Owner, picker: EndpointPicker, leader_labels: Mapping[str, str]
) -> Object:
    """Return the InferencePool of the targets that answer; `leader_labels` are their labels beside
    those of the role. Its v1 needs the name of an endpoint picker, which the user runs."""
    reference = {
        "group": "",
        "kind": "Service",
        "name": picker.name,
        "port": {"number": PICKER_PORT},
        "failureMode": picker.failure_mode.value,
    }
    spec = {
        "selector": {"matchLabels": {**selector(owner.name, Role.TARGET), **leader_labels}},
        "targetPorts": [{"number": HTTP_PORT}],
        "endpointPickerRef": reference,
    }
    return child(INFERENCE_POOL, owner, owner.name, spec=spec)
