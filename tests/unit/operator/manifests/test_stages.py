"""Pipelined targets: a pod for each stage, which knows its number and the addresses of all."""

from typing import Any

import pytest
import yaml

from outrider.contract.process import ENV_STAGE, ENV_STAGES, STAGE_PORT
from outrider.contract.settings import PipelineSettings, Role, StageDtype, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.operator.cluster.interfaces import Object
from outrider.operator.naming import (
    ROLE_LABEL,
    SERVICE_LABEL,
    WORKER_GROUP,
    WORKER_INDEX,
)
from outrider.operator.observed.pods import pod
from tests.unit.operator.one_service import OneService

SPEC = """
target:
  model: {uri: "hf://org/large"}
  replicas: 1
  parallelism: {pipeline: 3}
  resources: {requests: {memory: 1Gi}}
"""
TARGETS = {SERVICE_LABEL: "chat", ROLE_LABEL: "target"}


def service(**fields: Any) -> OneService:
    """With a target of three stages, at rest; `fields` are the target's."""
    spec = yaml.safe_load(SPEC)
    spec["target"] |= fields
    made = OneService(spec)
    made.rest(4)
    return made


def groups(made: OneService) -> Object:
    """What the only LeaderWorkerSet says of its groups."""
    (one,) = made.cluster.of("LeaderWorkerSet")
    found: Object = one["spec"]["leaderWorkerTemplate"]
    return found


def environment(pod: Object, template: Object) -> dict[str, str]:
    """The variables of a pod's container, as a kubelet works them out."""
    (main,) = template["spec"]["containers"]
    known: dict[str, str] = {"LWS_LEADER_ADDRESS": "chat-target-0.chat-target.default"}
    for one in main["env"]:
        if "valueFrom" in one:
            path = one["valueFrom"]["fieldRef"]["fieldPath"]
            text = pod["metadata"]["labels"][path.removeprefix("metadata.labels['").rstrip("']")]
        else:
            text = one["value"]
            for name, value in known.items():
                text = text.replace(f"$({name})", value)
        known[one["name"]] = text
    return known


def places(made: OneService, template: Object) -> list[StagePlace]:
    """What the pods of the only group are told, by their numbers."""
    told = [environment(pod, template) for pod in made.cluster.of("Pod")]
    found = [StagePlace.of(variables, 3) for variables in told]
    assert all("OUTRIDER_NODES" not in variables for variables in told)
    return sorted((one for one in found if one is not None), key=lambda one: one.index)


def test_a_stage_is_a_pod_that_knows_its_number_and_the_addresses_of_all() -> None:
    made = service()
    whole = groups(made)
    assert whole["size"] == 3
    assert whole["restartPolicy"] == "RecreateGroupOnPodRestart"
    hosts = (
        "chat-target-0.chat-target.default",
        "chat-target-0-1.chat-target.default.svc",
        "chat-target-0-2.chat-target.default.svc",
    )
    expected = [f"{host}:{STAGE_PORT}" for host in hosts]
    found = places(made, whole["workerTemplate"])
    assert [one.index for one in found] == [0, 1, 2]
    assert [list(one.addresses) for one in found] == [expected] * 3
    (main,) = whole["workerTemplate"]["spec"]["containers"]
    assert main["ports"][-1]["containerPort"] == STAGE_PORT
    order = [one["name"] for one in main["env"]]
    assert order.index("OUTRIDER_GROUP") < order.index(ENV_STAGES), "it refers to it"


def test_only_the_first_stage_answers_and_counts() -> None:
    made = service(replicas=2)
    for name in ("chat", "chat-targets"):
        picked = made.cluster.stored["Service", "default", name].body["spec"]["selector"]
        assert picked == {**TARGETS, WORKER_INDEX: "0"}
    assert len(made.cluster.of("Pod")) == 6
    assert len(made.workers.policies) == 2, "other stages are told nothing"
    assert made.raw["status"]["target"]["ready"] == "2/2"


def test_evictions_and_policies_count_every_stage() -> None:
    made = service(replicas=2)
    made.edit(lambda spec: spec.update(podDisruptionBudget={"maxUnavailable": "30%"}))
    made.pass_()
    budget = made.cluster.stored["PodDisruptionBudget", "default", "chat-target"].body["spec"]
    assert budget["maxUnavailable"] == "10%", "of three times as many pods"
    policy = made.cluster.stored["NetworkPolicy", "default", "chat-target"].body["spec"]
    assert {"from": [{"podSelector": {"matchLabels": TARGETS}}]} in policy["ingress"]


def test_the_cut_is_in_the_settings_of_all_stages() -> None:
    made = service(pipeline={"cut": [10, 12, 8], "dtype": "fp16"})
    (settings,) = (one for one in made.cluster.of("ConfigMap") if "settings.json" in one["data"])
    read = WorkerSettings.from_json(settings["data"]["settings.json"])
    assert read.role is Role.TARGET
    assert read.pipeline == PipelineSettings(stages=3, cut=(10, 12, 8), dtype=StageDtype.FP16)


def test_ranks_of_a_stage_share_its_pod() -> None:
    made = service(parallelism={"pipeline": 2, "tensor": 4})
    whole = groups(made)
    assert whole["size"] == 2
    (main,) = whole["workerTemplate"]["spec"]["containers"]
    assert {ENV_STAGE, ENV_STAGES} <= {one["name"] for one in main["env"]}


def test_another_number_of_stages_is_a_roll_out_of_the_same_object() -> None:
    made = service()
    made.edit(lambda spec: spec["target"].update(parallelism={"pipeline": 2}))
    made.rest(3)
    assert groups(made)["size"] == 2
    made.edit(lambda spec: spec["target"].update(parallelism={}))
    made.rest(4)
    assert made.cluster.of("LeaderWorkerSet") == []
    assert [one["metadata"]["name"] for one in made.cluster.of("Deployment")] == ["chat-target"]


@pytest.mark.parametrize(
    ("labels", "group", "number"),
    [
        ({WORKER_GROUP: "1", WORKER_INDEX: "2"}, "chat-target-1", 2),
        ({}, "", 0),
        ({WORKER_INDEX: "none"}, "", 0),
    ],
)
def test_where_a_pod_is_in_its_replica(labels: dict[str, str], group: str, number: int) -> None:
    found = pod({"metadata": {"uid": "u", "name": "p", "labels": {**TARGETS, **labels}}})
    assert (found.group, found.number, found.is_leader) == (group, number, number == 0)
