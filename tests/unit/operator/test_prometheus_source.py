"""Passes over a service whose metrics a Prometheus has."""

from typing import Any

import pytest
import yaml

from outrider.operator.control.prometheus import Answer
from outrider.operator.naming import SERVICE_LABEL
from outrider.operator.workers.prometheus_client import PodsQuery
from tests.unit.operator.one_service import KEY, SPEC, OneService

DECIDED = ("DraftingOn", "DraftingOff", "DraftsScaled")
SERVER = {"url": "http://prometheus", "matchers": [{"label": "cluster", "value": "eu"}]}


def service() -> OneService:
    spec: dict[str, Any] = yaml.safe_load(SPEC)
    return OneService({**spec, "metrics": {"source": "Prometheus", "prometheus": SERVER}})


def decisions(service: OneService) -> list[str]:
    return [reason for reason, _ in service.cluster.events if reason in DECIDED]


def told(service: OneService) -> list[tuple[str, str]]:
    words = ("PrometheusFailed", "MetricsAvailable")
    return [(reason, note) for reason, note in service.cluster.events if reason in words]


def test_the_loop_decides_on_what_a_prometheus_has() -> None:
    one = service()
    one.rest(8)
    assert one.condition("MetricsAvailable") == ("True", "MetricsFound")
    assert one.condition("SpeculationActive") == ("True", "Active")
    one.workers.gain = 0.5
    one.rest(6)
    assert one.condition("SpeculationActive") == ("False", "LowGain")


def test_a_question_names_every_pod_that_runs_and_the_service_s_server() -> None:
    one = service()
    asked: list[PodsQuery] = []

    def scraped(question: PodsQuery) -> Answer:
        asked.append(question)
        return one.workers.scraped(question)

    one.workers.prometheus = scraped
    one.rest(4)
    names = {pod["metadata"]["name"] for pod in one.cluster.of("Pod")}
    assert {pod.name for pod in asked[-1].pods} == names
    assert asked[-1].namespace == KEY[0]
    assert asked[-1].labels.others == (("cluster", "eu"),)
    assert asked[-1].seconds == 60


@pytest.mark.parametrize(
    ("stale", "interval", "seconds"), [(45, 15, 45), (3600, 15, 300), (3600, 120, 480)]
)
def test_no_more_points_are_asked_for_than_a_few_intervals_have(
    stale: int, interval: int, seconds: int
) -> None:
    one = service()
    one.rest(2)
    one.edit(lambda spec: spec["metrics"].update(staleAfterSeconds=stale))
    control = {"control": {"intervalSeconds": interval}}
    one.edit(lambda spec: spec.update(speculation=control))
    asked: list[PodsQuery] = []

    def scraped(question: PodsQuery) -> Answer:
        asked.append(question)
        return one.workers.scraped(question)

    one.workers.prometheus = scraped
    one.rest(12)
    assert asked[-1].seconds == seconds


def test_a_prometheus_that_fails_is_told_once_and_changes_nothing() -> None:
    one = service()
    one.rest(8)
    before = decisions(one)
    one.workers.prometheus = lambda question: Answer(failure="http://prometheus: HTTP 503")
    one.workers.gain = 0.5
    one.rest(12)
    assert one.condition("MetricsAvailable") == ("False", "PrometheusFailed")
    assert one.condition("SpeculationActive") == ("True", "MetricsUnavailable")
    assert decisions(one) == before
    one.workers.prometheus, one.workers.gain = one.workers.scraped, 1.5
    one.rest(4)
    assert one.condition("MetricsAvailable") == ("True", "MetricsFound")
    assert one.condition("SpeculationActive") == ("True", "Active")
    assert decisions(one) == before
    failed, back = told(one)
    assert failed == ("PrometheusFailed", "http://prometheus: HTTP 503")
    assert back[0] == "MetricsAvailable"


def test_an_answer_that_does_not_come_changes_nothing() -> None:
    one = service()
    one.rest(8)
    before = decisions(one)
    one.workers.prometheus = lambda question: None
    one.workers.gain = 0.5
    one.rest(12)
    assert one.condition("SpeculationActive") == ("True", "MetricsUnavailable")
    assert decisions(one) == before


def test_a_pod_that_is_not_scraped_is_named() -> None:
    one = service()

    def half(question: PodsQuery) -> Answer:
        found = one.workers.scraped(question)
        targets = tuple(sample for sample in found.samples if sample.role == "target")
        return Answer(targets, {"chat-draft": "Prometheus has no scrape of it"})

    one.workers.prometheus = half
    one.rest(8)
    assert one.condition("MetricsAvailable") == ("False", "MetricsMissing")
    assert one.condition("SpeculationActive") == ("True", "Active"), "targets decide"


def test_windows_are_as_long_as_scrapes_are_apart_and_nothing_is_blind_between_them() -> None:
    one, known = service(), [0.0]

    def every_third(question: PodsQuery) -> Answer:
        """Pods are scraped every 48 seconds and asked for every 16."""
        if one.now - known[0] < 48:
            return last[0]
        known[0] = one.now
        last[0] = one.workers.scraped(question)
        return last[0]

    last = [Answer()]
    one.workers.prometheus = every_third
    one.rest(8)
    reasons = set()
    for _ in range(12):
        one.rest(1)
        reasons.add(one.condition("SpeculationActive"))
    assert reasons == {("True", "Active")}
    one.workers.gain = 0.5
    one.rest(12)
    assert one.condition("SpeculationActive") == ("False", "LowGain")


def test_a_service_may_change_its_source() -> None:
    one = service()
    one.workers.prometheus = lambda question: Answer(failure="no answer")
    one.rest(8)
    assert one.condition("MetricsAvailable") == ("False", "PrometheusFailed")
    one.edit(lambda spec: spec["metrics"].update(source="Pods"))
    one.rest(4)
    assert one.condition("MetricsAvailable") == ("True", "MetricsFound")
    assert one.condition("SpeculationActive") == ("True", "Active")


def test_a_pod_monitor_has_the_labels_of_the_platform_beside_its_own_and_loses_them_again() -> None:
    one = service()
    one.rest(2)
    for labels in ({"release": "kube", SERVICE_LABEL: "another"}, {}):
        one.monitor_labels = labels
        one.restart()
        one.rest(1)
        (monitor,) = one.cluster.of("PodMonitor")
        found = monitor["metadata"]["labels"]
        assert found.get("release") == labels.get("release")
        assert found[SERVICE_LABEL] == "chat"


def test_what_is_asked_about_a_service_that_is_gone_ends() -> None:
    one = service()
    one.rest(2)
    one.cluster.remove(("SpeculativeService", *KEY))
    one.pass_()
    assert one.workers.forgotten_services == {KEY}
