"""Who may speak to a role's pods, how many may go at once, and as whom they run."""

from outrider.contract.ports import GRPC, HTTP
from outrider.contract.settings import Role
from outrider.operator.kinds import BUDGET, NETWORK_POLICY, SERVICE_ACCOUNT
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import role_name, selector

OPERATOR = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, which push policies and read metrics."""


def account(owner: Owner) -> Object:
    """The identity of all pods of a service: it may do nothing."""
    return child(SERVICE_ACCOUNT, owner, owner.name, automountServiceAccountToken=False)


def budget(owner: Owner, role: Role, max_unavailable: int | str, nodes: int) -> Object:
    """How many replicas of a role evictions may break at once. All `nodes` pods of a replica count,
    for the loss of one is the loss of all: of their number, a percentage is that much less."""
    spec = {
        "maxUnavailable": _of_pods(max_unavailable, nodes),
        "selector": {"matchLabels": selector(owner.name, role)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return child(BUDGET, owner, role_name(owner.name, role), role, spec=spec)


def _of_pods(replicas: int | str, nodes: int) -> int | str:
    """Pods that may be missing, so that no more than so many replicas are; Kubernetes rounds up."""
    if isinstance(replicas, int) or nodes == 1:
        return replicas
    percent = int(replicas.removesuffix("%"))
    return f"{max(percent // nodes, min(percent, 1))}%"


def policy(owner: Owner, role: Role, nodes: int) -> Object:
    """Who may speak to a role's pods; those of one replica exchange what they like."""
    rules = _of_targets() if role is Role.TARGET else _of_drafts(owner)
    peers = {"podSelector": {"matchLabels": selector(owner.name, role)}}
    return _policy(owner, role, [*rules, {"from": [peers]}] if nodes > 1 else rules)


def _of_targets() -> list[Object]:
    """Targets answer everybody."""
    return [{"ports": _ports(GRPC, HTTP)}]


def _of_drafts(owner: Owner) -> list[Object]:
    """Drafts hear the targets of their own service and the operator; anybody may read metrics."""
    targets = {"podSelector": {"matchLabels": selector(owner.name, Role.TARGET)}}
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": OPERATOR}}
    links = {"from": [targets, operator], "ports": _ports(GRPC)}
    return [links, {"ports": _ports(HTTP)}]


def _policy(owner: Owner, role: Role, ingress: list[Object]) -> Object:
    spec = {
        "podSelector": {"matchLabels": selector(owner.name, role)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return child(NETWORK_POLICY, owner, role_name(owner.name, role), role, spec=spec)


def _ports(*ports: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port} for port in ports]
