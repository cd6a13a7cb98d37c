"""What stands around the pods in a cluster: where they run, who may reach them, who watches them.

Means nothing to `outrider run`; the objects are built elsewhere.
"""

import enum
from typing import Annotated

from pydantic import Field

from outrider.operator.spec.part import Count, CountOrPercent, ObjectName, Seconds, SpecPart

TopologyKey = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$",
        max_length=317,
    ),
]


class TopologyPolicy(enum.StrEnum):
    """How strictly drafts run near targets."""

    NONE = "None"
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Topology(SpecPart):
    """Where drafts run, seen from the targets: what a link takes is lost from every guess."""

    policy: TopologyPolicy = TopologyPolicy.PREFERRED
    """Preferred: in a target's domain if there is room. Required: there or nowhere."""
    key: TopologyKey = "kubernetes.io/hostname"
    """Label of nodes that makes a domain, as kubernetes.io/hostname or topology.kubernetes.io/zone.
    """


class Automatic(enum.StrEnum):
    """Whether an object is made."""

    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class Metrics(SpecPart):
    """How the operator reads the workers' metrics."""

    stale_after_seconds: Seconds = 60
    """Age of the newest metrics from which on everything is left as it is."""


class NetworkPolicy(SpecPart):
    """Who may reach the pods."""

    mode: Automatic = Automatic.AUTO
    """Auto and Enabled: sessions of drafts (port 50051) are opened by targets and the operator
    only; metrics, and targets, may be reached by everybody. Disabled: no policy."""


class PodDisruptionBudget(SpecPart):
    """How many replicas of a role evictions may break at once."""

    mode: Automatic = Automatic.AUTO
    """Auto and Enabled: each role has a budget, however many replicas there are at the moment; with
    maxUnavailable 1 that of a single one holds up no eviction. Disabled: none."""
    max_unavailable: CountOrPercent = 1
    """How many may be missing, as a number or a percentage."""


class FailureMode(enum.StrEnum):
    """What a gateway does while the endpoint picker does not answer."""

    FAIL_CLOSE = "FailClose"
    FAIL_OPEN = "FailOpen"


class EndpointPicker(SpecPart):
    """Who chooses a target for each request of a gateway."""

    name: ObjectName
    """Name of its Service, in the service's namespace."""
    port: Count = Field(default=9002, ge=1, le=65_535)
    """Port of that Service."""
    failure_mode: FailureMode = FailureMode.FAIL_CLOSE
    """While it does not answer. FailClose: requests are refused. FailOpen: the gateway chooses."""


class InferencePool(SpecPart):
    """Whether gateways of the Gateway API find the targets."""

    endpoint_picker: EndpointPicker | None = None
    """Makes an InferencePool of the service's name with the targets, which needs a picker. Degraded
    says so where the cluster does not know that kind. Left out, none is made."""


class Monitoring(SpecPart):
    """Whether Prometheus is told of the pods."""

    mode: Automatic = Automatic.AUTO
    """Auto: a PodMonitor where the cluster knows that kind. Enabled: Degraded says so
    where it does not."""
