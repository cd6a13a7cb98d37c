"""Watches: their kinds, the owners of objects, the cached parts; health of those watches."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import generate_latest

from outrider.operator.cluster.kinds import DEPLOYMENT, LEASE, OPTIONAL, POD, SERVICE, ObjectKind
from outrider.operator.cluster.watch_handlers import Watches, owner_of, settings, trim
from outrider.operator.naming import SELECTOR, SERVICE_LABEL
from outrider.operator.observed.pods import pod
from outrider.operator.observed.service import observe
from outrider.operator.observed.workload import workload
from outrider.operator.server.health import SILENCE_SECONDS, HealthServer
from outrider.operator.server.metrics import OperatorMetrics

META = {"namespace": "n", "name": "x", "uid": "u", "generation": 2, "resourceVersion": "1"}
OURS = {**META, "labels": {SERVICE_LABEL: "chat", "outrider.dev/role": "draft"}}


@pytest.mark.parametrize(
    ("kind", "meta", "key"),
    [
        (SERVICE, META, ("n", "x")),
        (POD, OURS, ("n", "chat")),
        (POD, META, None),
        (LEASE, META, None),
    ],
)
def test_an_object_belongs_to_the_service_that_its_label_names(
    kind: ObjectKind, meta: Any, key: Any
) -> None:
    assert owner_of(kind, {"metadata": meta}) == key


def test_what_nobody_reads_is_not_kept() -> None:
    fields: list[Any] = [{"manager": "you", "fieldsV1": {"f:spec": {}}}]
    meta = {**META, "managedFields": fields}
    body: Any = {"metadata": meta, "spec": {"a": 1}, "status": {}}
    assert "spec" not in trim(POD, body)
    owned = {**body, "metadata": {**meta, "ownerReferences": [{"uid": "u"}]}}
    assert "managedFields" not in trim(POD, owned)["metadata"]
    assert trim(POD, body)["metadata"]["managedFields"] == [{"manager": "you"}]
    deployment = trim(DEPLOYMENT, body)
    assert deployment["metadata"]["managedFields"] == fields
    assert deployment["spec"] == {"a": 1}
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert body["metadata"] == {**META, "managedFields": fields}, "kopf's own stays as it is"


def test_every_wait_is_bounded_and_nothing_is_written() -> None:
    chosen = settings("the-lease")
    assert chosen.watching.server_timeout
    assert chosen.watching.client_timeout
    assert chosen.watching.client_timeout > chosen.watching.server_timeout
    assert chosen.watching.connect_timeout
    assert chosen.networking.request_timeout
    assert chosen.posting.enabled is False
    assert chosen.peering.standalone is True
    selectors = chosen.watching.label_selectors
    for kind in Watches(lambda key: None, OPTIONAL).watched:
        assert (selectors.get(kind.plural) == SELECTOR) == (kind not in (SERVICE, LEASE))
    assert chosen.watching.field_selectors["leases"] == "metadata.name=the-lease"


def test_a_follower_is_healthy_and_a_leader_must_hear_something() -> None:
    health = HealthServer(OperatorMetrics())
    health.heard = lambda: time.monotonic() - SILENCE_SECONDS - 5
    assert health.problem() == ""
    health.leading = True
    assert "no watch has reported anything" in health.problem()
    health.heard = time.monotonic
    assert health.problem() == ""
    health.watchers = lambda: "nobody watches pods any more"
    assert health.problem() == "nobody watches pods any more"


def test_services_are_counted_by_condition() -> None:
    metrics = OperatorMetrics()
    good, bad = {"Ready": ("True", "Serving")}, {"Ready": ("False", "TargetNotReady")}
    metrics.services = lambda: {("n", "a"): good, ("n", "b"): good, ("n", "c"): bad}
    text = generate_latest(metrics.registry).decode()
    assert 'outrider_operator_resources{condition="Ready",status="True"} 2.0' in text
    metrics.services = lambda: {("n", "a"): good}
    text = generate_latest(metrics.registry).decode()
    assert 'outrider_operator_resources{condition="Ready",status="True"} 1.0' in text
    assert 'status="False"' not in text


def test_services_that_need_a_look_are_named_with_the_reason() -> None:
    metrics = OperatorMetrics()
    metrics.services = lambda: {
        ("n", "good"): {"Ready": ("True", "Serving"), "Degraded": ("False", "AsExpected")},
        ("n", "bad"): {"Ready": ("Unknown", "InvalidSpec"), "Degraded": ("True", "InvalidSpec")},
        ("m", "slow"): {"Ready": ("True", "Serving"), "SpeculationActive": ("False", "LowGain")},
    }
    text = generate_latest(metrics.registry).decode()
    shown = [line for line in text.splitlines() if line.startswith("outrider_operator_problems")]
    common = 'namespace="n",reason="InvalidSpec",service="bad"} 1.0'
    assert shown == [
        f'outrider_operator_problems{{condition="{kind}",{common}' for kind in ("Ready", "Degraded")
    ]


def test_a_service_that_is_gone_is_not_measured() -> None:
    metrics = OperatorMetrics()
    metrics.metrics_age.labels("n", "chat").set(1)
    metrics.forget("n", "chat")
    metrics.forget("n", "never known")
    assert 'service="chat"' not in generate_latest(metrics.registry).decode()


def status_of(**changes: Any) -> Any:
    status = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}
    status |= {"availableReplicas": 2, "readyReplicas": 2}
    found = {"metadata": META, "spec": {"replicas": 2}, "status": {**status, **changes}}
    return workload({"kind": DEPLOYMENT.name, **found})


@pytest.mark.parametrize(
    ("changes", "settled", "replacing"),
    [
        ({}, True, False),
        ({"observedGeneration": 1}, False, True),
        ({"replicas": 3}, False, True),
        ({"availableReplicas": 1}, False, False),
        ({"updatedReplicas": 1, "replicas": 3}, False, True),
    ],
)
def test_a_workload_is_settled_once_nothing_older_is_left(
    changes: Any, settled: bool, replacing: bool
) -> None:
    found = status_of(**changes)
    assert (found.settled, found.replacing) == (settled, replacing)


def test_who_sets_the_replicas_is_read_from_managed_fields() -> None:
    fields = {"f:spec": {"f:replicas": {}}}

    def owner(*managers: str) -> str:
        entries = [{"manager": manager, "fieldsV1": fields} for manager in managers]
        meta = {**META, "managedFields": [*entries, {"manager": "else", "fieldsV1": {}}]}
        return workload({"kind": DEPLOYMENT.name, "metadata": meta, "spec": {}}).owner

    assert owner() == ""
    assert owner("hpa") == "hpa"
    assert owner("hpa", "outrider-operator") == "outrider-operator"


def test_a_pod_says_why_it_does_not_come_up() -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    status = {"initContainerStatuses": [{"name": "prepare", "state": {"waiting": waiting}}]}
    found = pod({"metadata": OURS, "status": status})
    assert found.trouble == "ErrImagePull: no such image"
    assert not found.ready
    assert not found.running
    calm = {
        "initContainerStatuses": [
            {"name": "p", "state": {"waiting": {"reason": "PodInitializing"}}}
        ]
    }
    assert pod({"metadata": OURS, "status": calm}).trouble == ""


def test_a_pod_that_leaves_is_not_counted() -> None:
    leaving = {**OURS, "deletionTimestamp": "now", "name": "y"}
    pods = [{"metadata": OURS, "status": {"podIP": "1.2.3.4"}}, {"metadata": leaving}]
    observed = observe({"metadata": META}, [], pods)
    (left,) = observed.pods_of(observed.pods[0].role)
    assert left.name == "x"
    assert left.running


@pytest.mark.parametrize(
    ("role", "name", "woken"),
    [
        ("draft", "pool", {("n", "pool"), ("n", "guest")}),
        ("target", "pool", {("n", "pool")}),
        ("draft", "other", {("n", "other")}),
    ],
)
def test_a_drafts_pod_wakes_the_services_whose_targets_link_to_it(
    role: str, name: str, woken: set[tuple[str, str]]
) -> None:
    watches = Watches(lambda key: None)
    guest = {"metadata": {**META, "name": "guest"}, "spec": {"draftsOf": "pool"}}
    elsewhere = {"metadata": {**META, "namespace": "m"}, "spec": {"draftsOf": "pool"}}
    known: dict[str, Any] = {kind.plural: {} for kind in watches.watched}
    known[SERVICE.plural] = {("n", "guest"): [guest], ("m", "x"): [elsewhere]}
    asyncio.run(watches._start(**known))
    labels = {SERVICE_LABEL: name, "outrider.dev/role": role}
    assert {*watches.woken(POD, {"metadata": {**META, "labels": labels}})} == woken
