"""The operator's own metrics.

Names follow the pattern of other operators' (Dynamo's): how long passes take, what fails, what was
decided, how old the evidence is. Leaves serving them to `health`.
"""

import contextlib
from collections import Counter as Count
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
        self.resources = Gauge(
            PREFIX + "resources",
            "Services, by condition and its status.",
            ("condition", "status"),
            registry=self.registry,
        )

    def count_resources(self, services: Iterable[Mapping[str, str]]) -> None:
        """Sets the gauge from the status of each condition of each service."""
        found = Count(pair for conditions in services for pair in conditions.items())
        self.resources.clear()
        for (condition, status), number in found.items():
            self.resources.labels(condition, status).set(number)

    def forget(self, namespace: str, service: str) -> None:
        """A service is gone."""
        with contextlib.suppress(KeyError):  # nothing was ever known of it
            self.metrics_age.remove(namespace, service)
