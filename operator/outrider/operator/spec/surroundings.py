"""Settings around the pods in a cluster: topology, network policy, budget, monitoring, gateways.

They have no effect on `outrider run`; `manifests` builds the objects.
"""

import enum
from typing import Annotated

from pydantic import Field

from outrider.operator.spec.part import CountOrPercent, ObjectName, SpecPart

TopologyKey = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$",
        max_length=317,
    ),
]


ClientNamespace = Annotated[ObjectName, Field(description="Name of a namespace.")]
TcpPort = Annotated[int, Field(strict=True, ge=1, le=65_535, description="A TCP port.")]
MAX_NAMESPACES, MAX_EGRESS_PORTS = 64, 16


class TopologyPolicy(enum.StrEnum):
    """Strictness with which drafts run near targets."""

    NONE = "None"
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Topology(SpecPart):
    """Topology of drafts relative to the targets: a link's latency delays every draft token."""

    policy: TopologyPolicy = TopologyPolicy.PREFERRED
    """Preferred: in a target's domain if there is room. Required: there or nowhere."""
    key: TopologyKey = "kubernetes.io/hostname"
    """Label of nodes that makes a domain, as kubernetes.io/hostname or topology.kubernetes.io/zone.
    """


class Automatic(enum.StrEnum):
    """Modes of an optional object."""

    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class NetworkPolicy(SpecPart):
    """Connections to and from the pods, as far as the cluster's network enforces policies."""

    mode: Automatic = Automatic.AUTO
    """Auto and Enabled: only targets of the service, and of those whose `draftsOf` names it, may
    open sessions of drafts (port 50051), and only the operator may ask and tell workers (port
    50054). Disabled: no policy."""
    client_namespaces: Annotated[tuple[ClientNamespace, ...], Field(max_length=MAX_NAMESPACES)] = ()
    """Namespaces whose pods may reach targets, and metrics of all workers, beside the service's
    own; a Prometheus of another has to be named too. Left out, all may."""
    egress_ports: Annotated[tuple[TcpPort, ...], Field(max_length=MAX_EGRESS_PORTS)] = (443,)
    """TCP ports at which pods may reach anybody, beside DNS and the pods of their own service: 443
    fetches models; a proxy, or a collector of traces, has its own."""


class PodDisruptionBudget(SpecPart):
    """Most replicas of a role that evictions may stop at once."""

    mode: Automatic = Automatic.AUTO
    """Auto and Enabled: each role has a budget, however many replicas there are at the moment; with
    maxUnavailable 1 that of a single one holds up no eviction. Disabled: none."""
    max_unavailable: CountOrPercent = 1
    """Most replicas that may be missing, as a number or a percentage."""


class FailureMode(enum.StrEnum):
    """Behaviour of a gateway while the endpoint picker does not answer."""

    FAIL_CLOSE = "FailClose"
    FAIL_OPEN = "FailOpen"


class EndpointPicker(SpecPart):
    """Endpoint picker: it chooses a target for each request of a gateway."""

    name: ObjectName
    """Name of its Service, in the service's namespace, which answers at port 9002."""
    failure_mode: FailureMode = FailureMode.FAIL_CLOSE
    """While it does not answer. FailClose: requests are refused. FailOpen: the gateway chooses."""


class InferencePool(SpecPart):
    """InferencePool for gateways of the Gateway API."""

    endpoint_picker: EndpointPicker | None = None
    """Makes an InferencePool of the service's name with the targets, which needs a picker. Degraded
    says so where the cluster does not know that kind. Left out, none is made."""


class Monitoring(SpecPart):
    """PodMonitor for Prometheus."""

    mode: Automatic = Automatic.AUTO
    """Auto: a PodMonitor where the cluster knows that kind. Enabled: Degraded says so
    where it does not."""


class ApiKeysSecretRef(SpecPart):
    """A Secret that holds API keys."""

    name: ObjectName
    """Name of the Secret, in the service's namespace."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "api-keys"
    """Key of the Secret that holds them, one a line, each of printable ASCII."""


class TlsSecretRef(SpecPart):
    """A Secret with a certificate and its private key."""

    name: ObjectName
    """Name of the Secret, of type kubernetes.io/tls, in the service's namespace; cert-manager
    writes such."""


class ClientAccess(SpecPart):
    """Clients that targets answer."""

    api_keys_secret_ref: ApiKeysSecretRef | None = None
    """Secret with API keys: requests over HTTP and gRPC must bring one of them. A changed Secret
    counts as soon as the node has it, without a restart; while it is not there, or holds no key,
    nobody is let in. Left out, targets answer whoever reaches them. `outrider run` takes
    --api-keys."""
    tls_secret_ref: TlsSecretRef | None = None
    """Secret with the certificate that targets show: their ports for clients, HTTP and gRPC, then
    speak TLS only. A changed Secret counts for new connections as soon as the node has it, without
    a restart; while it is not there, no target starts. Left out, they speak plain HTTP and gRPC.
    `outrider run` takes --tls-cert and --tls-key."""
