"""Network Services: one for HTTP, one for gRPC clients that balance, one for pairing."""

from collections.abc import Mapping
from typing import Any

from outrider.contract.ports import GRPC, HTTP
from outrider.contract.settings import Role
from outrider.operator.kinds import NETWORK_SERVICE
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import headless_name, selector

GRPC_PORT = {"name": "grpc", "port": GRPC, "targetPort": "grpc", "protocol": "TCP"}
HTTP_PORT = {"name": "http", "port": HTTP, "targetPort": "http", "protocol": "TCP"}


def front(owner: Owner, leads: Mapping[str, str]) -> Object:
    """One address for HTTP clients, spread over the targets by the cluster; `leads` are labels of
    the pods that answer, beside those of the role."""
    return _service(owner, owner.name, Role.TARGET, leads, ports=[HTTP_PORT, GRPC_PORT])


def headless(owner: Owner, role: Role, leads: Mapping[str, str]) -> Object:
    """All addresses of a role's ready pods that answer, for clients that choose among them."""
    name = headless_name(owner.name, role)
    return _service(owner, name, role, leads, clusterIP="None", ports=[GRPC_PORT])


def _service(owner: Owner, name: str, role: Role, leads: Mapping[str, str], **spec: Any) -> Object:
    ports = [{**port, "appProtocol": _protocol(port)} for port in spec.pop("ports")]
    picked = {**selector(owner.name, role), **leads}
    spec = {"type": "ClusterIP", "selector": picked, "ports": ports, **spec}
    return child(NETWORK_SERVICE, owner, name, role, spec=spec)


def _protocol(port: dict[str, Any]) -> str:
    return "kubernetes.io/h2c" if port is GRPC_PORT else "http"
