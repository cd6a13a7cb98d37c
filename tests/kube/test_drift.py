"""What others do to a service's objects: ours comes back, theirs stays; at rest nobody writes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    BUDGET,
    CHILDREN,
    CLAIM,
    CONFIG_MAP,
    DEPLOYMENT,
    GUARDED,
    NETWORK_POLICY,
    NETWORK_SERVICE,
    ROLE_SCALER,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ObjectKind,
)
from outrider.operator.naming import MANAGED_BY, SERVICE_LABEL
from tests.kube.operator_process import REQUESTS, OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service

EVERYTHING = {
    "target": {
        "replicas": None,
        "scaling": {"mode": "External"},
        "cache": {"type": "PersistentVolumeClaim", "size": "1Gi"},
    },
    "podDisruptionBudget": {"mode": "Enabled"},
}
"""A service that has a child of every kind."""
PART = "app.kubernetes.io/part-of"
EDITS: dict[str, Object] = {
    SERVICE_ACCOUNT.name: {"automountServiceAccountToken": True},
    CONFIG_MAP.name: {"data": {"policy.json": "{}"}},
    CLAIM.name: {"metadata": {"labels": {PART: "other"}}},
    NETWORK_SERVICE.name: {"spec": {"selector": {SERVICE_LABEL: "other"}}},
    NETWORK_POLICY.name: {"spec": {"policyTypes": ["Ingress"]}},
    BUDGET.name: {"spec": {"maxUnavailable": 7}},
    DEPLOYMENT.name: {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}},
    ROLE_SCALER.name: {"metadata": {"labels": {PART: "other"}}},
}
"""A change of each kind that the operator has to undo; a claim and a scaler have no field of ours
that can change."""


@pytest.fixture
def whole(space: Space, operator: OperatorProcess, workers: PodWorkers) -> Iterator[str]:
    """A service at rest with a child of every kind; nothing is left undone in the log."""
    space.control_plane.apply(volume(space.namespace))
    space.apply(service("chat", **EVERYTHING))
    space.until_at_rest("chat")
    yield "chat"
    assert "Traceback" not in operator.said
    space.kubectl("delete", "pv", space.namespace, "--wait=false")


def volume(name: str) -> Object:
    spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
    spec["hostPath"] = {"path": f"/tmp/{name}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def some(space: Space, kind: ObjectKind) -> str:
    """Name of a child of a kind."""
    return sorted(name for one, name in space.children("chat") if one == kind.name)[-1]


def spoken_of(live: Object | None) -> Any:
    """What the operator wants of an object: all but what the server and others write."""
    if live is None:
        return None
    ours = ("labels", "ownerReferences", "annotations")
    meta = {key: live["metadata"].get(key) for key in ours}
    notes = meta["annotations"] or {}
    meta["annotations"] = {key: notes[key] for key in notes if key.startswith("outrider.dev/")}
    keys = ("spec", "data", "automountServiceAccountToken", "immutable")
    spec = {key: live[key] for key in keys if key in live}
    given = ("clusterIP", "clusterIPs", "volumeName", "replicas")
    if isinstance(spec.get("spec"), dict):
        spec["spec"] = {k: v for k, v in spec["spec"].items() if k not in given}
    if "memory.json" in spec.get("data", {}):
        spec["data"] = sorted(spec["data"])
    return meta, spec


def test_a_child_of_every_kind_comes_back_when_it_is_deleted(whole: str, space: Space) -> None:
    made = {kind for kind, _ in space.children(whole)}
    assert made == {kind.name for kind in (*CHILDREN, *GUARDED)}
    for kind in CHILDREN:
        name = some(space, kind)
        before = space.there(kind, name)
        if kind is CLAIM:  # a claim in use is kept until its pods are gone
            continue
        space.delete(kind, name)

        def back(kind: ObjectKind = kind, name: str = name, before: Object = before) -> bool:
            live = space.get(kind, name)
            new = live is not None and live["metadata"]["uid"] != before["metadata"]["uid"]
            return new and spoken_of(live) == spoken_of(before)

        space.until(back, f"{kind.name} {name} is back")
    space.until_at_rest(whole)


def test_certificates_that_are_deleted_come_back_once_they_are_read_again(
    whole: str, space: Space, operator: OperatorProcess
) -> None:
    names = [name for kind, name in space.children(whole) if kind == SECRET.name]
    for name in names:
        space.delete(SECRET, name)
    assert operator.stop() == 0
    operator.start()  # one that runs reads them every ten minutes
    for name in names:
        space.until(lambda name=name: space.get(SECRET, name) is not None, f"{name} is back")  # type: ignore[misc]
    space.until_at_rest(whole)


def test_an_edit_of_every_kind_is_undone(whole: str, space: Space) -> None:
    assert set(EDITS) == {kind.name for kind in CHILDREN}
    for kind in CHILDREN:
        name = some(space, kind)
        before = spoken_of(space.there(kind, name))
        if kind is CONFIG_MAP:
            name = f"{whole}-intent"
            before = spoken_of(space.there(kind, name))
        space.patch(kind, name, EDITS[kind.name])
        space.until(
            lambda kind=kind, name=name, before=before: (  # type: ignore[misc]
                spoken_of(space.there(kind, name)) == before
            ),
            f"{kind.name} {name} is as it was",
        )
    assert space.policy(whole)["version"] > 0


@pytest.mark.parametrize("label", [MANAGED_BY, SERVICE_LABEL, "app.kubernetes.io/instance"])
def test_a_label_of_every_kind_comes_back(label: str, whole: str, space: Space) -> None:
    for kind in CHILDREN:
        name = some(space, kind)
        before = spoken_of(space.there(kind, name))
        space.patch(kind, name, {"metadata": {"labels": {label: "somebody"}}})
        space.until(
            lambda kind=kind, name=name, before=before: (  # type: ignore[misc]
                spoken_of(space.there(kind, name)) == before
            ),
            f"{kind.name} {name} is as it was",
        )


def test_fields_of_others_are_left_alone(
    whole: str, space: Space, operator: OperatorProcess
) -> None:
    theirs = {"annotations": {"example.org/team": "a"}, "labels": {"example.org/cost": "b"}}
    for kind in CHILDREN:
        space.patch(kind, some(space, kind), {"metadata": theirs})
    space.patch(
        DEPLOYMENT, "chat-target", {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
    )
    operator.wait_for_passes(5)
    for kind in CHILDREN:
        meta = space.there(kind, some(space, kind))["metadata"]
        assert meta["annotations"]["example.org/team"] == "a", kind
        assert meta["labels"]["example.org/cost"] == "b", kind
    template = space.deployment(whole, Role.TARGET)["spec"]["template"]
    assert template["metadata"]["annotations"]["a"] == "b"


def test_an_object_of_somebody_else_is_not_taken_over(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    labels = {SERVICE_LABEL: "chat", MANAGED_BY: "outrider-operator"}
    for name, worn in (("chat", {}), ("chat-targets", labels)):
        spec = {"ports": [{"port": 80}], "selector": {"app": "theirs"}}
        space.create(NETWORK_SERVICE, {"metadata": {"name": name, "labels": worn}, "spec": spec})
    before = space.items(NETWORK_SERVICE)
    space.apply(service("chat"))
    found = space.until_condition("chat", "Degraded", "True", "ForeignObject")
    assert found["message"].startswith("Service chat ")
    space.until_condition("chat", "Ready", "True", "Serving")
    operator.wait_for_passes(3)
    after = {one["metadata"]["name"]: one for one in space.items(NETWORK_SERVICE)}
    assert [after[one["metadata"]["name"]] for one in before] == before
    assert ("Warning", "ForeignObject") in [told[:2] for told in space.events("chat")]
    for one in before:
        space.delete(NETWORK_SERVICE, one["metadata"]["name"])
    space.until_condition("chat", "Degraded", "False", "AsExpected")
    assert space.there(NETWORK_SERVICE, "chat")["spec"]["ports"][0]["port"] == 8000


def test_an_object_that_is_handed_over_becomes_the_services_own(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    meta = {"name": "chat", "annotations": {"example.org/role": "reader"}}
    space.create(SERVICE_ACCOUNT, {"metadata": meta, "automountServiceAccountToken": True})
    space.apply(service("chat"))
    found = space.until_condition("chat", "Stalled", "True", "ForeignObject")
    assert found["message"].startswith("ServiceAccount chat belongs to somebody else")
    assert space.get(DEPLOYMENT, "chat-target") is None
    owner = space.there(SERVICE, "chat")
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    space.patch(SERVICE_ACCOUNT, "chat", {"metadata": {"ownerReferences": [reference]}})
    space.until_condition("chat", "Ready", "True", "Serving")
    space.until_condition("chat", "Stalled", "False", "NotStalled")
    account = space.there(SERVICE_ACCOUNT, "chat")
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["annotations"]["example.org/role"] == "reader"


def test_of_two_services_that_want_one_name_the_second_says_whose_it_is(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    """Each has a Service of its own name, and `chat` one for its targets."""
    space.apply(service("chat"))
    space.until_at_rest("chat")
    space.apply(service("chat-targets"))
    found = space.until_condition("chat-targets", "Degraded", "True", "ForeignObject")
    words = "Service chat-targets belongs to SpeculativeService chat and is left alone"
    assert found["message"] == words
    operator.wait_for_passes(3)
    assert space.condition("chat", "Degraded")["reason"] == "AsExpected"


def test_at_rest_nobody_writes_and_nobody_asks(
    whole: str, space: Space, operator: OperatorProcess
) -> None:
    wait_until_idle(space, operator, whole)
    before = versions(space, whole)
    assert_nobody_asks(operator)
    assert versions(space, whole) == before


def test_a_service_without_advice_is_at_rest_too(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    asked = {"resources": {"requests": {"memory": "1Gi"}}}
    space.apply(service("chat", target=asked, draft=asked))
    space.until_at_rest("chat")
    assert space.there(SERVICE, "chat")["status"]["advice"] == []
    wait_until_idle(space, operator, "chat")
    assert_nobody_asks(operator)


def wait_until_idle(space: Space, operator: OperatorProcess, name: str) -> None:
    """Wait until drafting is on, without work, and nothing more is written of it."""

    def on() -> bool:
        return bool(space.condition(name, "SpeculationActive")["status"] == "True")

    def idle() -> bool:
        memory = space.there(CONFIG_MAP, f"{name}-intent")["data"]["memory.json"]
        return json.loads(memory)["idle_since"] is not None

    space.until(on, "drafting is on")
    space.until(idle, "it is noted that there is no work")
    operator.wait_for_passes(3)


def assert_nobody_asks(operator: OperatorProcess) -> None:
    """For eight passes the operator sends no request but those for its lease and its claim."""
    others, unpaired = requests(operator)
    operator.wait_for_passes(8)
    others_after, unpaired_after = requests(operator)
    assert others_after == others
    assert abs(unpaired_after - unpaired) <= 2  # two renewals may have only begun


def versions(space: Space, name: str) -> dict[str, str]:
    every = [*space.children(name).values(), space.there(SERVICE, name)]
    return {str(one["metadata"]["uid"]): one["metadata"]["resourceVersion"] for one in every}


def requests(operator: OperatorProcess) -> tuple[int, int]:
    """Those that are neither reads nor writes of whole objects, and by how much more are reads; a
    renewal is one of each."""
    every, reads, writes = (
        int(operator.value(REQUESTS, **labels)) for labels in ({}, {"verb": "get"}, {"verb": "put"})
    )
    return every - reads - writes, reads - writes
