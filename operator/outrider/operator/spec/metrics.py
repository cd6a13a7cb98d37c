"""Source of the metrics that the operator's control loop reads: the pods, or a Prometheus."""

import enum
from typing import Annotated

from pydantic import Field

from outrider.operator.spec.part import ObjectName, Seconds, SpecPart

HttpUrl = Annotated[
    str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", min_length=1, max_length=512)
]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=128)]
Key = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
MAX_MATCHERS = 8


class MetricsSource(enum.StrEnum):
    """Where the workers' metrics are read."""

    PODS = "Pods"
    PROMETHEUS = "Prometheus"


class BearerSecretRef(SpecPart):
    """A Secret that holds a bearer token."""

    name: ObjectName
    """Name of the Secret, in the service's namespace."""
    key: Key = "token"
    """Key of the Secret that holds the token."""


class BasicAuthSecretRef(SpecPart):
    """A Secret of the type kubernetes.io/basic-auth."""

    name: ObjectName
    """Name of the Secret, in the service's namespace, with the keys username and password."""


class CaConfigMapRef(SpecPart):
    """A ConfigMap that holds certificates in PEM."""

    name: ObjectName
    """Name of the ConfigMap, in the service's namespace."""
    key: Key = "ca.crt"
    """Key of the ConfigMap that holds them."""


class Matcher(SpecPart):
    """A label that the workers' series have, and its value."""

    label: LabelName
    """Name of the label."""
    value: Annotated[str, Field(min_length=1, max_length=253)]
    """Its value, as it is."""


class Prometheus(SpecPart):
    """A server with Prometheus's HTTP API that scrapes the workers' pods."""

    url: HttpUrl
    """Address without `/api/v1`: http:// or https://, a host and, if there is one, a path."""
    token_secret_ref: BearerSecretRef | None = None
    """Secret with a bearer token that goes with each query."""
    basic_auth_secret_ref: BasicAuthSecretRef | None = None
    """Secret with a user's name and password that go with each query."""
    ca_config_map_ref: CaConfigMapRef | None = None
    """ConfigMap with the only authorities that may have signed the server's certificate; left out,
    those that the operator's image knows."""
    namespace_label: LabelName = "namespace"
    """Label of the series that holds the pod's namespace, as a PodMonitor gives it."""
    pod_label: LabelName = "pod"
    """Label of the series that holds the pod's name, as a PodMonitor gives it."""
    matchers: Annotated[tuple[Matcher, ...], Field(max_length=MAX_MATCHERS)] = ()
    """Further labels that the series must have, such as the cluster's where one server holds those
    of several."""

    @property
    def has_secret(self) -> bool:
        """True if a Secret's content goes with each query."""
        return self.token_secret_ref is not None or self.basic_auth_secret_ref is not None


class Metrics(SpecPart):
    """Reading of the workers' metrics by the operator."""

    source: MetricsSource = MetricsSource.PODS
    """Pods: the operator asks each of them. Prometheus: it queries a server that scrapes them.
    `outrider run` asks its workers either way."""
    prometheus: Prometheus | None = None
    """The server to query where source is Prometheus."""
    stale_after_seconds: Seconds = 60
    """Age of the newest metrics from which on everything is left as it is. With a Prometheus, at
    least twice its scrape interval."""
