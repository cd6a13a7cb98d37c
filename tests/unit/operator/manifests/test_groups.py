"""Replicas of several pods: which objects they become, which pods answer, how they roll."""

import datetime
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import (
    INFERENCE_POOL,
    LEADER_WORKER_SET,
    POD_MONITOR,
    ObjectKind,
)
from outrider.operator.naming import (
    COMPONENT_LABEL,
    FIELD_MANAGER,
    MANAGED_BY,
    ROLE_LABEL,
    SERVICE_LABEL,
    SETTINGS_ANNOTATION,
    WORKER_INDEX,
)
from outrider.operator.observed.pods import pod
from tests.unit.operator.one_service import OneService
from tests.unit.operator.small_controllers import reference

SPEC = """
target:
  model: {uri: "hf://org/large"}
  replicas: 1
  parallelism: {tensor: 4, nodes: 2}
  resources: {requests: {memory: 1Gi}}
"""
LEADER = {SERVICE_LABEL: "chat", ROLE_LABEL: "target"}


def service(*kinds: ObjectKind, ready: bool = True, **fields: Any) -> OneService:
    """With one role of two machines, at rest; `kinds` are served too, `fields` are the target's."""
    spec = yaml.safe_load(SPEC)
    spec["target"] |= fields
    made = OneService(spec, (LEADER_WORKER_SET, *kinds))
    made.controllers.ready = lambda role: ready
    made.rest(4)
    return made


def named(made: OneService, kind: str, name: str) -> Object:
    return made.cluster.stored[kind, "default", name].body


def changed(made: OneService, **fields: Any) -> None:
    made.edit(lambda spec: spec["target"].update(fields))


def names(made: OneService, kind: str) -> list[str]:
    return [one["metadata"]["name"] for one in made.cluster.of(kind)]


def sizes(made: OneService, kind: str) -> list[int]:
    """Replicas of each object of a kind."""
    return [one["spec"]["replicas"] for one in made.cluster.of(kind)]


def turn(made: OneService, passes: int = 1) -> None:
    """Run passes; controllers do nothing between them."""
    for _ in range(passes):
        made.pass_()


def environment(template: Object) -> dict[str, Any]:
    (main,) = template["spec"]["containers"]
    return {one["name"]: one.get("value") or one["valueFrom"] for one in main["env"]}


def index(label: str) -> Mapping[str, Any]:
    return {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}


def test_only_the_first_pod_of_a_group_answers_and_counts() -> None:
    made = service(replicas=2)
    for name in ("chat", "chat-targets"):
        assert named(made, "Service", name)["spec"]["selector"] == {**LEADER, WORKER_INDEX: "0"}
    assert len(made.cluster.of("Pod")) == 4
    assert len(made.workers.policies) == 2, "followers are told nothing"
    status = made.raw["status"]["target"]
    assert (status["ready"], status["replicas"]) == ("2/2", 2)
    assert status["selector"].endswith(f"{WORKER_INDEX}=0")
    assert made.condition("Progressing") == ("False", "Complete")


def test_a_follower_that_fails_is_said() -> None:
    made = service()
    follower = next(
        p for p in made.cluster.of("Pod") if p["metadata"]["labels"][WORKER_INDEX] == "1"
    )
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "name": "main"}
    made.cluster.put_status(follower, {**follower["status"], "containerStatuses": [waiting]})
    made.pass_()
    assert made.condition("Degraded") == ("True", "PodsFailing")


def test_evictions_and_policies_count_all_pods_of_a_group() -> None:
    made = service(replicas=2)
    made.edit(lambda spec: spec.update(podDisruptionBudget={"maxUnavailable": "20%"}))
    made.pass_()
    budget = named(made, "PodDisruptionBudget", "chat-target")["spec"]
    assert budget["selector"]["matchLabels"] == LEADER, "the loss of a follower is a group's"
    assert budget["maxUnavailable"] == "10%", "of twice as many pods"
    rules = named(made, "NetworkPolicy", "chat-target")["spec"]["ingress"]
    assert {"from": [{"podSelector": {"matchLabels": LEADER}}]} in rules


def aged(made: OneService, seconds: float) -> None:
    """All pods were made so long ago."""
    for one in made.cluster.of("Pod"):
        one["metadata"]["creationTimestamp"] = ago(made, seconds)


def ago(made: OneService, seconds: float) -> str:
    """A time as the API has it."""
    at = datetime.datetime.fromtimestamp(made.now - seconds, datetime.UTC)
    return at.isoformat().replace("+00:00", "Z")


def unready(made: OneService, since: float, begun: float | None) -> None:
    """No pod has been ready for so many seconds; their containers began so long ago, if at all."""
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": ago(made, since)}]
    if begun is not None:
        done = {"type": "Initialized", "status": "True", "lastTransitionTime": ago(made, begun)}
        conditions.append(done)
    for one in made.cluster.of("Pod"):
        made.cluster.put_status(one, {**one["status"], "conditions": conditions})


def test_first_groups_that_stay_unready_are_a_failed_roll_out() -> None:
    made = service(replicas=2, update={"progressSeconds": 60}, ready=False)
    aged(made, 50)
    unready(made, 50, None)
    turn(made)
    assert made.condition("Progressing")[0] == "True"
    aged(made, 70)
    unready(made, 70, 30)
    turn(made)
    assert made.condition("Progressing") == ("False", "RolloutFailed")
    assert made.condition("Degraded") == ("True", "RolloutFailed")
    made.controllers.ready = lambda role: True
    made.rest(3)
    assert made.condition("Progressing") == ("False", "Complete")
    assert made.condition("Degraded") == ("False", "AsExpected")


def test_leaders_that_were_ready_or_are_older_fail_no_roll_out_of_a_leader_worker_set() -> None:
    made = service(update={"progressSeconds": 60})
    aged(made, 700)
    unready(made, 300, 650)
    turn(made)
    assert made.condition("Degraded") == ("False", "AsExpected")
    changed(made, image="worker:2")
    unready(made, 700, None)
    turn(made, 2)
    assert made.condition("Degraded") == ("False", "AsExpected")


def test_settings_stay_while_a_follower_may_start_from_them() -> None:
    made = service()
    (old,) = (name for name in names(made, "ConfigMap") if "-target-" in name)
    meta = {"name": "late", "namespace": "default", "annotations": {SETTINGS_ANNOTATION: old}}
    meta["labels"] = {**LEADER, WORKER_INDEX: "1", MANAGED_BY: FIELD_MANAGER}
    meta["ownerReferences"] = [reference(named(made, "StatefulSet", "chat-target"))]
    made.controllers.idle.add("late")
    made.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    changed(made, engine={"threads": 2})
    made.rest(4)
    assert old in names(made, "ConfigMap")
    made.cluster.remove(("Pod", "default", "late"))
    turn(made)
    assert old not in names(made, "ConfigMap")


def picked(made: OneService, name: str) -> dict[str, bool]:
    """Of each component that has pods which lead no group, whether a Service picks them."""
    wanted = named(made, "Service", name)["spec"]["selector"].items()
    labels = [pod["metadata"]["labels"] for pod in made.cluster.of("Pod")]
    silent = [one for one in labels if one.get(WORKER_INDEX) != "0"]
    return {one[COMPONENT_LABEL]: wanted <= one.items() for one in silent}


def test_one_machine_more_is_a_roll_out_from_pods_to_groups_and_back() -> None:
    made = service(parallelism={"tensor": 4})
    assert names(made, "Deployment") == ["chat-target"]
    changed(made, parallelism={"tensor": 4, "nodes": 2})
    turn(made, 2)
    assert names(made, "Deployment") == ["chat-target"], "it serves until a group does"
    assert sizes(made, "LeaderWorkerSet") == [1]
    made.controllers.ready = lambda role: False  # followers may be ready, long before their leader
    made.controllers.settle()
    turn(made)
    made.controllers.ready = lambda role: True
    assert picked(made, "chat") == {"target": True, "target-group": False}
    made.rest(3)
    assert names(made, "Deployment") == []
    assert named(made, "Service", "chat")["spec"]["selector"] == {**LEADER, WORKER_INDEX: "0"}
    changed(made, parallelism={"tensor": 4})
    turn(made, 2)
    assert names(made, "Deployment") == ["chat-target"]
    assert sizes(made, "LeaderWorkerSet") == [1], "it serves until the other does"
    assert named(made, "Service", "chat")["spec"]["selector"] == {**LEADER, WORKER_INDEX: "0"}
    made.rest(3)
    assert names(made, "LeaderWorkerSet") == []
    assert named(made, "Service", "chat")["spec"]["selector"] == LEADER


def test_followers_get_no_requests_while_groups_become_pods_alone() -> None:
    made = service(replicas=2)
    changed(made, parallelism={"tensor": 4})
    observed = []
    for _ in range(8):
        turn(made)
        observed.append((len(names(made, "LeaderWorkerSet")) > 0, picked(made, "chat")))
        made.controllers.settle()
    assert (True, {"target": True, "target-group": False}) in observed, "as soon as one pod serves"
    assert not any(found.get("target-group") for _, found in observed)
    assert observed[-1] == (False, {"target": True})


def test_recreating_as_single_pods_waits_until_no_pod_of_a_group_is_left() -> None:
    made = service(update={"strategy": "Recreate"})
    changed(made, parallelism={"tensor": 4})
    turn(made, 3)
    assert sizes(made, "Deployment") == [0]
    made.rest(3)
    assert sizes(made, "Deployment") == [1]
    assert made.condition("Progressing") == ("False", "Complete")


def test_pods_go_one_by_one_as_groups_get_ready() -> None:
    made = service(parallelism={"tensor": 4}, replicas=3)
    changed(made, parallelism={"tensor": 4, "nodes": 2})
    observed = []
    for _ in range(8):
        turn(made)
        made.controllers.settle()
        observed.append((*sizes(made, "Deployment"), *sizes(made, "LeaderWorkerSet")))
    assert observed[-1] == (3,), "groups alone"
    pairs = [found for found in observed if len(found) == 2]
    assert [pods for pods, _ in pairs] == sorted((pods for pods, _ in pairs), reverse=True)
    assert {pods + groups for pods, groups in pairs} <= {3, 4}


def test_one_leader_worker_set_holds_all_groups_of_a_role() -> None:
    made = service(replicas=3)
    (whole,) = made.cluster.of("LeaderWorkerSet")
    assert made.cluster.of("Deployment") == []
    assert whole["spec"]["replicas"] == 3
    inner = whole["spec"]["leaderWorkerTemplate"]
    assert (inner["size"], inner["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
    rolling = whole["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}, "the operator surges itself"
    words = environment(inner["workerTemplate"])
    assert words["OUTRIDER_NODE"] == index(WORKER_INDEX)
    assert words["OUTRIDER_LEADER"] == "$(LWS_LEADER_ADDRESS)"
    assert named(made, "Service", "chat")["spec"]["selector"] == {**LEADER, WORKER_INDEX: "0"}
    assert made.raw["status"]["target"]["ready"] == "3/3"
    assert made.condition("Progressing") == ("False", "Complete")


def test_all_groups_of_a_leader_worker_set_go_at_once_where_that_is_asked_for() -> None:
    made = service(update={"strategy": "Recreate"})
    (whole,) = made.cluster.of("LeaderWorkerSet")
    rolling = whole["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}
    changed(made, replicas=3)
    made.rest(2)
    (whole,) = made.cluster.of("LeaderWorkerSet")
    rolling = whole["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 3}
    made.edit(lambda spec: spec.update(suspend="Suspended"))
    made.rest(2)
    (whole,) = made.cluster.of("LeaderWorkerSet")
    rolling = whole["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}, "another owner may make it more than 0"


@pytest.mark.parametrize(
    ("replicas", "surge", "expected"),
    [
        (1, 0, {"maxUnavailable": 1, "maxSurge": 0}),
        (20, 0, {"maxUnavailable": 2, "maxSurge": 0}),
        (1, "1%", {"maxUnavailable": 1, "maxSurge": 0}),
        (20, 3, {"maxUnavailable": 5, "maxSurge": 0}),
    ],
)
def test_bounds_of_a_leader_worker_set_never_come_to_nothing_and_count_the_operators_surge(
    replicas: int, surge: int | str, expected: dict[str, int]
) -> None:
    update = {"maxUnavailable": "10%", "maxSurge": surge}
    made = service(update=update, replicas=replicas)
    (whole,) = made.cluster.of("LeaderWorkerSet")
    assert whole["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == expected


def test_bounds_follow_a_number_that_somebody_else_sets() -> None:
    update = {"maxUnavailable": "50%", "maxSurge": 0}
    made = service(update=update, replicas=1)
    made.edit(lambda spec: spec["target"].pop("replicas"))
    made.rest(2)
    key = ("LeaderWorkerSet", "default", "chat-target")
    made.cluster.edit(key, lambda one: one["spec"].update(replicas=4))
    made.rest(2)
    spec = named(made, "LeaderWorkerSet", "chat-target")["spec"]
    assert spec["replicas"] == 4
    assert spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxUnavailable"] == 2


@pytest.mark.parametrize(
    ("labels", "leads"),
    [
        ({}, True),
        ({WORKER_INDEX: "0"}, True),
        ({WORKER_INDEX: "1"}, False),
    ],
)
def test_who_leads_a_group(labels: dict[str, str], leads: bool) -> None:
    meta = {"uid": "u", "name": "p", "labels": {**LEADER, **labels}}
    assert pod({"metadata": meta}).is_leader is leads


def test_prometheus_leaves_followers_out_where_there_are_some() -> None:
    one, two = service(POD_MONITOR, parallelism={"tensor": 2}), service(POD_MONITOR)
    (plain,) = named(one, "PodMonitor", "chat")["spec"]["podMetricsEndpoints"]
    (found,) = named(two, "PodMonitor", "chat")["spec"]["podMetricsEndpoints"]
    name: dict[str, object] = {"action": "replace", "targetLabel": "service"}
    name |= {"sourceLabels": ["__meta_kubernetes_pod_label_outrider_dev_service"]}
    assert plain["relabelings"] == [name]
    first, rule = found["relabelings"]
    assert first == name
    assert rule["action"] == "drop"
    label = "__meta_kubernetes_pod_label_leaderworkerset_sigs_k8s_io_worker_index"
    assert rule["sourceLabels"] == [label]
    dropped = [one for one in ("", "0", "1", "10") if re.fullmatch(rule["regex"], one)]
    assert dropped == ["1", "10"]


PICKER = {"endpointPicker": {"name": "picker"}}


def test_an_inference_pool_of_the_targets_is_made_where_a_picker_is_named() -> None:
    made = service(INFERENCE_POOL)
    assert made.cluster.of("InferencePool") == []
    made.edit(lambda spec: spec.update(inferencePool=PICKER))
    made.rest(2)
    spec = named(made, "InferencePool", "chat")["spec"]
    assert spec["selector"] == {"matchLabels": {**LEADER, WORKER_INDEX: "0"}}
    assert spec["targetPorts"] == [{"number": 8000}]
    assert spec["endpointPickerRef"] == {
        "group": "",
        "kind": "Service",
        "name": "picker",
        "port": {"number": 9002},
        "failureMode": "FailClose",
    }
    made.edit(lambda spec: spec.pop("inferencePool"))
    made.rest(2)
    assert made.cluster.of("InferencePool") == []


def test_a_pool_that_the_cluster_cannot_hold_is_said() -> None:
    made = service()
    made.edit(lambda spec: spec.update(inferencePool=PICKER))
    made.rest(2)
    assert made.condition("Degraded") == ("True", "Forbidden")
