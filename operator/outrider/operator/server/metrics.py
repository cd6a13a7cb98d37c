"""The operator's own metrics.

Names follow the pattern of other operators' (Dynamo's): duration of reconciles, errors, decisions,
age of the metrics. Leaves serving them to `health`.
"""

import contextlib
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.spec.conditions import ConditionType

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
"""Buckets, fine up to a second, which is the goal of the slowest hundredth (`bench.operator`)."""
DECISIONS = "Changes of the policy or of replicas that the control loop decided on."
METRICS_AGE = "Age of the oldest metrics that the last reconcile of a service decided on."

RESOURCES = "Services, by condition and its status."
PROBLEMS = "1 for each service whose Ready is not True, and for each whose Degraded is."

Conditions = Mapping[str, tuple[str, str]]
"""Status and reason of each condition of a service, by its type."""


class ScrapedGauge(Collector):
    """A gauge whose values are read at each scrape."""

    def __init__(
        self,
        name: str,
        words: str,
        labels: tuple[str, ...],
        read: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """`read` returns the values by those of the labels."""
        self._name, self._words, self._labels, self._read = name, words, labels, read

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric without values."""
        yield GaugeMetricFamily(PREFIX + self._name, self._words, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric with its values, for prometheus-client."""
        for gauge in self.describe():
            for labels, value in self._read().items():
                gauge.add_metric(labels, value)
            yield gauge


class OperatorMetrics:
    """Counters and gauges in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = self._histogram(
            "reconcile_duration_seconds", "Time of one reconcile of one service."
        )
        self.queue = self._histogram(
            "queue_duration_seconds", "Time from the first event of a service to its reconcile."
        )
        self.passes = self._counter("reconcile", "Reconciles, by result.", "namespace", "result")
        self.errors = self._counter(
            "reconcile_errors",
            "Reconciles that failed, by type of error.",
            "namespace",
            "error_type",
        )
        self.decisions = self._counter("decisions", DECISIONS, "namespace", "action", "reason")
        self.requests = self._counter(
            "api_requests", "Requests to the API server beside the watches.", "verb", "code"
        )
        self.metrics_age = self._gauge("metrics_age_seconds", METRICS_AGE, "namespace", "service")
        self.watch_age = self._gauge(
            "watch_last_event_age_seconds",
            "Time since the last event of any watch.",
        )
        self.services: Callable[[], Mapping[ServiceKey, Conditions]] = dict
        """What was reported last of each service."""
        self.resources = self._scraped("resources", RESOURCES, self._count, "condition", "status")
        where = ("namespace", "service", "condition", "reason")
        self.problems = self._scraped("problems", PROBLEMS, self._problems, *where)

    def forget(self, namespace: str, service: str) -> None:
        """Remove the series of a service that is gone."""
        with contextlib.suppress(KeyError):  # it never had any
            self.metrics_age.remove(namespace, service)

    def _count(self) -> Mapping[tuple[str, ...], float]:
        services = self.services().values()
        return Count((kind, status) for found in services for kind, (status, _) in found.items())

    def _problems(self) -> Mapping[tuple[str, ...], float]:
        return {
            (*key, kind, reason): 1.0
            for key, found in self.services().items()
            for kind, (status, reason) in found.items()
            if (kind == ConditionType.READY and status != "True")
            or (kind == ConditionType.DEGRADED and status == "True")
        }

    def _histogram(self, name: str, words: str) -> Histogram:
        return Histogram(PREFIX + name, words, buckets=SECONDS, registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, words, labels, registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, words, labels, registry=self.registry)

    def _scraped(
        self,
        name: str,
        words: str,
        read: Callable[[], Mapping[tuple[str, ...], float]],
        *labels: str,
    ) -> ScrapedGauge:
        gauge = ScrapedGauge(name, words, labels, read)
        self.registry.register(gauge)
        return gauge
