"""The operator's own metrics.

Names follow the pattern of other operators' (Dynamo's): how long passes take, what fails, what was
decided, how old the evidence is. Leaves serving them to `health`.
"""

import contextlib
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PREFIX = "outrider_operator_"
SECONDS = (
    0.003,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    1.5,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Fine up to a second, the goal of the slowest hundredth (`bench.operator`)."""


class Resources(Collector):
    """Services, by condition and its status; counted when somebody asks."""

    def __init__(self, services: Callable[[], Iterable[Mapping[str, str]]]) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client wants it."""
        found = Count(pair for conditions in self._services() for pair in conditions.items())
        gauge = GaugeMetricFamily(
            PREFIX + "resources",
            "Services, by condition and its status.",
            labels=("condition", "status"),
        )
        for labels, number in found.items():
            gauge.add_metric(labels, number)
        yield gauge


class Measured:
    """Counters and gauges in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            PREFIX + "reconcile_duration_seconds",
            "Time of one pass over one service.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.queue = Histogram(
            PREFIX + "queue_duration_seconds",
            "Time from a wake of a service to its pass.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.passes = Counter(
            PREFIX + "reconcile",
            "Passes, by what came of them.",
            ("namespace", "result"),
            registry=self.registry,
        )
        self.errors = Counter(
            PREFIX + "reconcile_errors",
            "Passes that failed, by what failed.",
            ("namespace", "error_type"),
            registry=self.registry,
        )
        self.decisions = Counter(
            PREFIX + "decisions",
            "Changes of the policy or of replicas that the control loop decided on.",
            ("namespace", "action", "reason"),
            registry=self.registry,
        )
        self.requests = Counter(
            PREFIX + "api_requests",
            "Requests to the API server beside the watches.",
            ("verb", "code"),
            registry=self.registry,
        )
        self.metrics_age = Gauge(
            PREFIX + "metrics_age_seconds",
            "Age of the oldest metrics that the last pass over a service decided on.",
            ("namespace", "service"),
            registry=self.registry,
        )
        self.watch_age = Gauge(
            PREFIX + "watch_last_event_age_seconds",
            "Time since the API server was last heard through any watch.",
            registry=self.registry,
        )
        self.services: Callable[[], Iterable[Mapping[str, str]]] = tuple
        """The status of each condition, of each service."""
        self.registry.register(Resources(lambda: self.services()))

    def forget(self, namespace: str, service: str) -> None:
        """A service is gone."""
        with contextlib.suppress(KeyError):  # nothing was ever known of it
            self.metrics_age.remove(namespace, service)
