"""Replicas of several pods that lack one: they do not serve, and what they lack is named."""

import copy
import datetime
import json
from typing import Any

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.naming import GROUP_SIZE, WORKER_GROUP, WORKER_INDEX
from outrider.operator.observed.pods import Pod
from outrider.operator.observed.service import observe
from tests.unit.operator.one_service import OneService

SPEC = """
target: {model: {uri: "hf://org/large"}, replicas: 1, resources: {requests: {memory: 1Gi}}}
"""
STAGES = {"parallelism": {"pipeline": 4}}


def service(**fields: Any) -> OneService:
    """With one target, at rest; `fields` are the target's."""
    spec = yaml.safe_load(SPEC)
    spec["target"] |= fields
    made = OneService(spec)
    made.rest(4)
    return made


def grow(made: OneService, stages: int) -> None:
    """The user asks for another number of stages; no controller has done anything about it yet."""
    made.edit(lambda spec: spec["target"]["parallelism"].update(pipeline=stages))
    for _ in range(3):
        made.now += 16
        made.pass_()


def added(made: OneService, number: int, stages: int) -> None:
    """A ready pod of the group that a rollout adds to those that are wanted."""
    pod, name = copy.deepcopy(made.cluster.of("Pod")[0]), f"added-{number}"
    pod["metadata"] |= {"name": name, "uid": name}
    pod["metadata"]["labels"] |= {WORKER_GROUP: "1", WORKER_INDEX: str(number)}
    pod["metadata"]["annotations"] |= {GROUP_SIZE: str(stages)}
    made.cluster.put(pod, "controller")
    made.cluster.put_status(pod, pod["status"])


def member(made: OneService, number: int) -> Object:
    """A pod of the only replica."""

    def numbered(pod: Object) -> bool:
        labels = pod["metadata"]["labels"]
        return bool(labels[WORKER_INDEX] == str(number))

    (found,) = filter(numbered, made.cluster.of("Pod"))
    return found


def unready(made: OneService, number: int, seconds: float, **more: Any) -> str:
    """A pod has not been ready for so long; its name."""
    pod = member(made, number)
    at = datetime.datetime.fromtimestamp(made.now - seconds, datetime.UTC)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at.isoformat()}
    made.cluster.put_status(pod, {**pod["status"], "conditions": [ready], **more})
    made.pass_()
    return str(pod["metadata"]["name"])


def message(made: OneService, kind: str = "TargetAvailable") -> str:
    found = next(c for c in made.raw["status"]["conditions"] if c["type"] == kind)
    return str(found["message"])


def test_a_stage_that_is_not_ready_is_named_with_its_time() -> None:
    made = service(**STAGES)
    assert made.condition("Ready") == ("True", "Serving")
    name = unready(made, 2, seconds=45)
    assert message(made) == f"0 of 1 targets serve; stage 3 of 4 ({name}): not ready for 40 s"
    assert made.condition("TargetAvailable") == ("False", "PodsNotReady")
    assert made.condition("Ready") == ("False", "TargetNotReady"), "its leader alone cannot serve"
    assert made.raw["status"]["target"]["ready"] == "0/1"
    made.controllers.settle()
    made.pass_()
    assert made.condition("Ready") == ("True", "Serving")


def test_the_time_without_readiness_is_told_by_the_clock_alone() -> None:
    made = service(**STAGES)
    name = unready(made, 2, seconds=45)
    made.now += 40.0
    made.pass_()
    assert message(made) == f"0 of 1 targets serve; stage 3 of 4 ({name}): not ready for 80 s"


def test_a_stage_without_a_pod_is_named_by_the_name_that_it_will_have() -> None:
    made = service(**STAGES)
    made.cluster.remove(("Pod", "default", member(made, 1)["metadata"]["name"]))
    made.pass_()
    assert message(made) == "0 of 1 targets serve; stage 2 of 4 (chat-target-0-1): there is no pod"


REFUSAL = "settings.pipeline.stages: 4 is not allowed; the model has 3 layers"


@pytest.mark.parametrize(
    ("last", "quoted"),
    [
        (f"outrider worker: {REFUSAL}", f"outrider worker: {REFUSAL}"),
        (json.dumps({"error": REFUSAL}), REFUSAL),
        ('{"prepared": {}}', '{"prepared": {}}'),
        ("[1]", "[1]"),
    ],
)
def test_why_a_stage_cannot_start_is_quoted_in_the_words_of_its_worker(
    last: str, quoted: str
) -> None:
    made = service(**STAGES)
    log = f'{{"stage": "hash", "done": 1, "total": 1}}\n{last}\n'
    status = {
        "name": "prepare",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": 2, "message": log}},
    }
    name = unready(made, 3, seconds=50, initContainerStatuses=[status])
    ended = "CrashLoopBackOff: prepare has ended 3 times, last with exit code 2"
    words = f"{ended}; it ended with: {quoted}"
    assert message(made) == f"0 of 1 targets serve; stage 4 of 4 ({name}): {words}"
    assert message(made, "Degraded") == f"{name}: {words}"


def test_many_missing_stages_are_counted() -> None:
    made = service(parallelism={"pipeline": 8})
    made.controllers.ready = lambda role: False
    made.controllers.settle()
    made.pass_()
    assert message(made).count("stage") == 3
    assert message(made).endswith("; and 5 more")


def test_a_machine_of_ranks_that_is_missing_is_named_too() -> None:
    made = service(parallelism={"tensor": 2, "nodes": 2})
    name = unready(made, 1, seconds=5)
    assert message(made) == f"0 of 1 targets serve; machine 2 of 2 ({name}): not ready"


def test_a_status_that_only_waits_is_written_ever_more_rarely() -> None:
    made = service(**STAGES)
    unready(made, 2, seconds=0)
    made.cluster.writes.clear()
    for _ in range(120):
        made.now += 5
        made.pass_()
    told = [one for one in made.cluster.writes if "status" in one]
    assert len(told) == 6, "after 10, 20, 40, 80, 160 and 320 s"


def test_a_group_of_the_former_size_serves_until_it_is_replaced() -> None:
    made = service(parallelism={"pipeline": 2})
    grow(made, 4)
    (whole,) = made.cluster.of("LeaderWorkerSet")
    assert whole["spec"]["leaderWorkerTemplate"]["size"] == 4
    assert made.condition("TargetAvailable") == ("True", "Ready")
    assert made.raw["status"]["target"]["ready"] == "1/1"
    name = unready(made, 1, seconds=45)
    assert message(made) == f"0 of 1 targets serve; stage 2 of 2 ({name}): not ready for 40 s"


def test_a_group_that_a_roll_out_adds_serves_once_it_has_all_its_stages() -> None:
    made = service(parallelism={"pipeline": 2})
    grow(made, 4)
    for number in range(3):
        added(made, number, stages=4)
    made.pass_()
    assert len(_serving(made)) == 1, "its last stage has no pod yet"
    added(made, 3, stages=4)
    made.pass_()
    assert {pod.group for pod in _serving(made)} == {"chat-target-0", "chat-target-1"}


def _serving(made: OneService) -> tuple[Pod, ...]:
    every = (made.raw, [s.body for s in made.cluster.stored.values()], made.cluster.of("Pod"))
    return observe(*every, made.now).serving(Role.TARGET)


def test_a_leader_of_whose_replica_a_pod_ends_is_told_once_to_finish() -> None:
    made = service(**STAGES, requests={"maxSeconds": 60})
    assert made.workers.drained == []
    leader, leaving = member(made, 0), member(made, 2)
    leaving["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    for _ in range(3):
        made.pass_()
        made.now += 16
    (name, seconds), *more = made.workers.drained
    assert more == []
    assert name == leader["metadata"]["name"]
    assert seconds > 60


def test_a_leader_that_ends_itself_knows_it() -> None:
    made = service(**STAGES)
    for number in range(4):
        member(made, number)["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    made.pass_()
    assert made.workers.drained == []
