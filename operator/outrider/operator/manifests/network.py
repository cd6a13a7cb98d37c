"""Services and NetworkPolicies: the addresses of a role's pods, and who may reach them."""

from collections.abc import Iterable, Mapping
from typing import Any

from outrider.contract.process import CONTROL_PORT, DRAFT_HTTP_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import NETWORK_POLICY, NETWORK_SERVICE
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import headless_name, role_name, selector

GRPC_SERVICE = {"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"}
HTTP_SERVICE = {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}
OPERATOR = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, which push policies and read metrics."""
NAMESPACE = "kubernetes.io/metadata.name"
"""Label by which Kubernetes names each namespace; nobody else can set it."""


def front(owner: Owner, leader_labels: Mapping[str, str]) -> Object:
    """Return the Service that spreads HTTP requests over the targets; `leader_labels` are the
    labels of the pods that answer, beside those of the role."""
    return _service(
        owner, owner.name, Role.TARGET, leader_labels, ports=[HTTP_SERVICE, GRPC_SERVICE]
    )


def headless(owner: Owner, role: Role, leader_labels: Mapping[str, str]) -> Object:
    """Return the headless Service with the addresses of a role's ready pods that answer."""
    name = headless_name(owner.name, role)
    return _service(owner, name, role, leader_labels, clusterIP="None", ports=[GRPC_SERVICE])


def _service(
    owner: Owner, name: str, role: Role, leader_labels: Mapping[str, str], **spec: Any
) -> Object:
    ports = [{**port, "appProtocol": _protocol(port)} for port in spec.pop("ports")]
    picked = {**selector(owner.name, role), **leader_labels}
    spec = {"type": "ClusterIP", "selector": picked, "ports": ports, **spec}
    return child(NETWORK_SERVICE, owner, name, role, spec=spec)


def _protocol(port: dict[str, Any]) -> str:
    return "kubernetes.io/h2c" if port is GRPC_SERVICE else "http"


def network_policy(
    owner: Owner, role: Role, same_pod: bool, every_port: Iterable[Role], operator: str
) -> Object:
    """Return the policy of connections to a role's pods.

    `same_pod`: each target's pod holds a draft too; `every_port`: pods of these roles may use it;
    `operator`: the operator's namespace, empty: it is not known.
    """
    rules = _of_targets(same_pod) if role is Role.TARGET else _of_drafts(owner)
    control = {"from": [_operator(operator)], "ports": _ports(CONTROL_PORT)}
    pods = [{"podSelector": {"matchLabels": selector(owner.name, peer)}} for peer in every_port]
    return _policy(owner, role, [*rules, control, *([{"from": pods}] if pods else [])])


def _operator(namespace: str) -> Object:
    """Return what selects the operator's pods: in its own namespace alone, where that is known, for
    anybody can label pods of a namespace of theirs as it does."""
    named = {"matchLabels": {NAMESPACE: namespace}} if namespace else {}
    return {"namespaceSelector": named, "podSelector": {"matchLabels": OPERATOR}}


def _of_targets(same_pod: bool) -> list[Object]:
    """Return the rules of targets, which accept every client; so does a draft beside one, for its
    metrics. Links to that draft come over the pod's loopback, which no policy concerns."""
    metrics = (DRAFT_HTTP_PORT,) if same_pod else ()
    return [{"ports": _ports(GRPC_PORT, HTTP_PORT, *metrics)}]


def _of_drafts(owner: Owner) -> list[Object]:
    """Return the rules of drafts: links from targets of their own service, metrics for every
    client."""
    targets = {"podSelector": {"matchLabels": selector(owner.name, Role.TARGET)}}
    links = {"from": [targets], "ports": _ports(GRPC_PORT)}
    return [links, {"ports": _ports(HTTP_PORT)}]


def _policy(owner: Owner, role: Role, ingress: list[Object]) -> Object:
    spec = {
        "podSelector": {"matchLabels": selector(owner.name, role)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return child(NETWORK_POLICY, owner, role_name(owner.name, role), role, spec=spec)


def _ports(*ports: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port} for port in ports]
