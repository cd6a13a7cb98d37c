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


def budget(owner: Owner, role: Role, max_unavailable: int | str) -> Object:
    """How many pods of a role an eviction may take at once."""
    spec = {
        "maxUnavailable": max_unavailable,
        "selector": {"matchLabels": selector(owner.name, role)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return child(BUDGET, owner, role_name(owner.name, role), role, spec=spec)


def target_policy(owner: Owner) -> Object:
    """Targets answer everybody."""
    return _policy(owner, Role.TARGET, [{"ports": _ports(GRPC, HTTP)}])


def draft_policy(owner: Owner) -> Object:
    """Drafts hear the targets of their own service and the operator; anybody may read metrics."""
    targets = {"podSelector": {"matchLabels": selector(owner.name, Role.TARGET)}}
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": OPERATOR}}
    links = {"from": [targets, operator], "ports": _ports(GRPC)}
    return _policy(owner, Role.DRAFT, [links, {"ports": _ports(HTTP)}])


def _policy(owner: Owner, role: Role, ingress: list[Object]) -> Object:
    spec = {
        "podSelector": {"matchLabels": selector(owner.name, role)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return child(NETWORK_POLICY, owner, role_name(owner.name, role), role, spec=spec)


def _ports(*ports: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port} for port in ports]
