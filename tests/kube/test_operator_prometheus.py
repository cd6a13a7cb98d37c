"""The control loop in a cluster whose workers a Prometheus scrapes."""

import json
from typing import Any

import pytest

from outrider.contract.settings import Role
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess
from tests.kube.paired import GOOD, POOR, Paired, spec
from tests.kube.pod_prometheus import PodPrometheus
from tests.kube.pod_workers import PodWorkers

SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "reader"}}


@pytest.fixture
def pair(control_plane: ControlPlane, definitions: None, namespace: str) -> Paired:
    return Paired(control_plane, namespace)


def asking(server: PodPrometheus) -> dict[str, Any]:
    """A service that asks a server with a token."""
    reference = {"url": server.url, "tokenSecretRef": {"name": "reader"}}
    own = {"source": "Prometheus", "prometheus": reference, "staleAfterSeconds": 10}
    return {**spec(), "metrics": own}


def test_a_prometheus_decides_and_nothing_changes_while_it_fails(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    with PodPrometheus(workers, pair.namespace) as server:
        pair.apply(asking(server))
        pair.until(
            lambda: pair.fails("MetricsAvailable", "PrometheusFailed"), "the Secret is missing"
        )
        assert "there is none in the namespace" in pair.condition("MetricsAvailable")["message"]
        secret = json.dumps({**SECRET, "stringData": {"token": "word"}})
        pair.control_plane.kubectl("apply", "-n", pair.namespace, "-f", "-", stdin=secret)
        pair.until(lambda: pair.holds("MetricsAvailable", "MetricsFound"), "pods are scraped")
        assert set(server.credentials) == {"Bearer word"}
        pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
        server.refuses = "out of memory"
        pair.until(
            lambda: pair.holds("SpeculationActive", "MetricsUnavailable"), "nothing is known"
        )
        assert pair.condition("MetricsAvailable")["reason"] == "PrometheusFailed"
        assert "HTTP 503" in pair.condition("MetricsAvailable")["message"]
        workers.behave(Role.TARGET, rates=POOR)
        server.refuses = ""
        pair.until(lambda: pair.fails("SpeculationActive", "LowGain"), "it does not pay")
        pair.until(lambda: pair.replicas(Role.DRAFT) == 0, "the draft is given back")
        told = [one for one in pair.events if one in ("PrometheusFailed", "DraftingOff")]
        assert told[-2:] == ["PrometheusFailed", "DraftingOff"]
