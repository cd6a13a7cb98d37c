"""Services and NetworkPolicies: the addresses of a role's pods, and who may reach them."""

from collections.abc import Iterable, Mapping
from typing import Any

from outrider.contract.process import CONTROL_PORT, DRAFT_HTTP_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import NETWORK_POLICY, NETWORK_SERVICE
from outrider.operator.manifests.child import Object, child
from outrider.operator.naming import (
    DRAFTS_LABEL,
    ROLE_LABEL,
    SERVICE_LABEL,
    headless_name,
    role_name,
    selector,
)
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.surroundings import NetworkPolicy

GRPC_SERVICE = {"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"}
HTTP_SERVICE = {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}
OPERATOR = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, which push policies and read states."""
NAMESPACE = "kubernetes.io/metadata.name"
DNS_PORTS = (53, 5353)
"""The second is that of OpenShift's DNS pods: a policy may be asked after the service's address has
been replaced by a pod's."""
"""Label by which Kubernetes names each namespace; nobody else can set it."""


def front(owner: Owner, leader_labels: Mapping[str, str], *, tls: bool) -> Object:
    """Return the Service that spreads requests over the targets; `leader_labels` are the labels of
    the pods that answer, beside those of the role; `tls`: both ports speak it."""
    ports = [_port(one, tls) for one in (HTTP_SERVICE, GRPC_SERVICE)]
    return _service(owner, owner.name, Role.TARGET, leader_labels, ports=ports)


def headless(owner: Owner, role: Role, leader_labels: Mapping[str, str], *, tls: bool) -> Object:
    """Return the headless Service with the addresses of a role's ready pods that answer."""
    name, ports = headless_name(owner.name, role), [_port(GRPC_SERVICE, tls)]
    return _service(owner, name, role, leader_labels, ports=ports, clusterIP="None")


def _service(
    owner: Owner, name: str, role: Role, leader_labels: Mapping[str, str], **spec: Any
) -> Object:
    picked = {**selector(owner.name, role), **leader_labels}
    families = {"ipFamilyPolicy": "PreferDualStack"}  # one family where the cluster has one
    spec = {"type": "ClusterIP", **families, "selector": picked, **spec}
    return child(NETWORK_SERVICE, owner, name, role, spec=spec)


def _port(port: Object, tls: bool) -> Object:
    """Return a port with what is spoken there; over TLS, HTTP/2 is agreed on by ALPN."""
    plain = "kubernetes.io/h2c" if port is GRPC_SERVICE else "http"
    return {**port, "appProtocol": "https" if tls else plain}


def network_policy(
    owner: Owner,
    role: Role,
    wanted: NetworkPolicy,
    same_pod: bool,
    every_port: Iterable[Role],
    operator: str,
    lender: str | None = None,
) -> Object:
    """Return the policy of connections to and from a role's pods.

    `same_pod`: each target's pod holds a draft too; `every_port`: pods of these roles may use it;
    `operator`: the operator's namespace, empty: it is not known; `lender`: the service whose drafts
    the pods link to.
    """
    clients = _clients(wanted)
    rules = _of_drafts(owner, clients)
    if role is Role.TARGET:
        rules = _of_targets(same_pod, clients)
    rules.append({"from": [_operator(operator)], "ports": _ports(CONTROL_PORT)})
    if pods := [{"podSelector": {"matchLabels": selector(owner.name, one)}} for one in every_port]:
        rules.append({"from": pods})
    return _policy(owner, role, rules, _egress(owner, wanted, lender))


def _clients(wanted: NetworkPolicy) -> Object:
    """Return who may ask targets and read metrics; empty: all."""
    if not wanted.client_namespaces:
        return {}
    names = {"key": NAMESPACE, "operator": "In", "values": list(wanted.client_namespaces)}
    named = {"namespaceSelector": {"matchExpressions": [names]}}
    return {"from": [{"podSelector": {}}, named]}


def _egress(owner: Owner, wanted: NetworkPolicy, lender: str | None) -> list[Object]:
    """Return the rules of connections that pods open: DNS, their own service, the drafts of
    another, and what is named."""
    dns = [
        {"protocol": protocol, "port": port} for protocol in ("UDP", "TCP") for port in DNS_PORTS
    ]
    pods = {"podSelector": {"matchLabels": {SERVICE_LABEL: owner.name}}}
    rules: list[Object] = [{"ports": dns}, {"to": [pods]}]
    if lender is not None:
        drafts = {"podSelector": {"matchLabels": selector(lender, Role.DRAFT)}}
        rules.append({"to": [drafts], "ports": _ports(GRPC_PORT)})
    return [*rules, {"ports": _ports(*wanted.egress_ports)}] if wanted.egress_ports else rules


def _operator(namespace: str) -> Object:
    """Return what selects the operator's pods: in its own namespace alone, where that is known, for
    anybody can label pods of a namespace of theirs as it does."""
    named = {"matchLabels": {NAMESPACE: namespace}} if namespace else {}
    return {"namespaceSelector": named, "podSelector": {"matchLabels": OPERATOR}}


def _of_targets(same_pod: bool, clients: Object) -> list[Object]:
    """Return the rules of targets, which accept clients; so does a draft beside one, for its
    metrics. Links to that draft come over the pod's loopback, which no policy concerns."""
    metrics = (DRAFT_HTTP_PORT,) if same_pod else ()
    return [{**clients, "ports": _ports(GRPC_PORT, HTTP_PORT, *metrics)}]


def _of_drafts(owner: Owner, clients: Object) -> list[Object]:
    """Return the rules of drafts: links from targets of their own service and of others of the
    namespace that ask for them, metrics for clients."""
    targets = selector(owner.name, Role.TARGET), {DRAFTS_LABEL: owner.name, ROLE_LABEL: Role.TARGET}
    pods = [{"podSelector": {"matchLabels": labels}} for labels in targets]
    links = {"from": pods, "ports": _ports(GRPC_PORT)}
    return [links, {**clients, "ports": _ports(HTTP_PORT)}]


def _policy(owner: Owner, role: Role, ingress: list[Object], egress: list[Object]) -> Object:
    spec = {
        "podSelector": {"matchLabels": selector(owner.name, role)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }
    return child(NETWORK_POLICY, owner, role_name(owner.name, role), role, spec=spec)


def _ports(*ports: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port} for port in ports]
