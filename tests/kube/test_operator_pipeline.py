"""Targets cut over stages, on a real API server: pods come, meet, fail, roll and go as groups.

Pods are the real StatefulSet controller's; in each a fake worker meets the other stages at the
addresses that the operator gave it, and its readiness is the pod's.
"""

import json
from typing import Any

import pytest

from outrider.contract.process import STAGE_PORT
from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    NETWORK_SERVICE,
    POD,
    SERVICE,
    STATEFUL_SET,
)
from outrider.operator.naming import POD_INDEX
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_probes import PodProbes
from tests.kube.pod_workers import PodWorker, PodWorkers
from tests.kube.space import Object, Space, service
from tests.kube.test_operator_groups import addresses, groups
from tests.merge_patch import laid_over

REFUSAL = "settings.pipeline.stages: 3 is not allowed; the model has 2 layers"


@pytest.fixture
def probes(space: Space, workers: PodWorkers) -> PodProbes:
    """Of targets."""
    return PodProbes(space, workers, Role.TARGET)


def described(space: Space, stages: int, **target: Any) -> None:
    """A target of so many stages, and no draft."""
    over = laid_over({"parallelism": {"pipeline": stages}}, target)
    wanted = service("chat", draft=None, target=over)
    if space.get(SERVICE, "chat") is None:
        space.create(SERVICE, wanted)
    else:
        space.replace(SERVICE, "chat", wanted["spec"])
    space.until_seen("chat")


def until_complete(probes: PodProbes, count: int, replicas: int = 1) -> None:
    """Waits until so many replicas of `count` stages serve, each counted once."""
    space, served = probes.space, f"{replicas}/{replicas}"

    def complete() -> bool:
        progressing = space.condition("chat", "Progressing").get("reason")
        return space.status("chat")["target"]["ready"] == served and progressing == "Complete"

    probes.until(complete, f"{served} serve", pods=count * replicas)


def stages(workers: PodWorkers) -> list[PodWorker]:
    """Of the only group, in their order."""
    return sorted(workers.of(Role.TARGET), key=lambda one: one.pod["metadata"]["labels"][POD_INDEX])


def lives(workers: PodWorkers) -> list[int]:
    return [one.lives for one in stages(workers)]


def lack(space: Space) -> str:
    """What TargetAvailable says."""
    return str(space.condition("chat", "TargetAvailable").get("message"))


@pytest.mark.parametrize("count", [2, 3])
def test_stages_meet_at_the_addresses_that_they_are_given_and_the_first_answers(
    count: int, space: Space, operator: OperatorProcess, workers: PodWorkers, probes: PodProbes
) -> None:
    described(space, count, pipeline={"cut": [4] * count})
    until_complete(probes, count)
    assert space.get(DEPLOYMENT, "chat-target") is None
    (name,) = groups(space)
    names = [f"{name}-{n}" for n in range(count)]
    assert [one.name for one in stages(workers)] == names
    space.until(lambda: addresses(space, "chat") == {names[0]}, "the first stage answers")
    space.until(lambda: addresses(space, "chat-target-nodes") == {*names}, "all have names")
    port = space.there(NETWORK_SERVICE, "chat-target-nodes")["spec"]["ports"][0]["port"]
    assert port == STAGE_PORT
    (found,) = (one for one in space.items(CONFIG_MAP) if "settings.json" in one.get("data", {}))
    settings = WorkerSettings.from_json(found["data"]["settings.json"])
    assert (settings.pipeline.stages, settings.pipeline.cut) == (count, (4,) * count)
    assert [bool(one.pushed) for one in stages(workers)] == [False] * count, "it has no draft"
    assert space.status("chat")["target"]["replicas"] == 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stage_that_dies_ends_its_group_and_all_begin_again(
    number: int, space: Space, operator: OperatorProcess, workers: PodWorkers, probes: PodProbes
) -> None:
    described(space, 3)
    until_complete(probes, 3)
    before, (name,) = lives(workers), groups(space)
    pods = {pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)}
    stages(workers)[number].kill()
    place = f"stage {number + 1} of 3 ({name}-{number}): not ready"
    found: dict[str, Object] = {}

    def named() -> bool:
        """True if it is; keeps all conditions of that moment, for the stage may come back."""
        found.update({one["type"]: one for one in space.status("chat")["conditions"]})
        return place in str(found["TargetAvailable"].get("message"))

    probes.until(named, "the stage is named")
    assert found["Ready"]["status"] == "False"
    begun = "each of them begins again, not the one alone"
    probes.until(
        lambda: all(new > old for new, old in zip(lives(workers), before, strict=True)), begun
    )
    until_complete(probes, 3)
    assert {pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)} == pods, "nothing moved"


def test_a_stage_whose_pod_is_gone_is_met_at_its_new_address(
    space: Space, operator: OperatorProcess, workers: PodWorkers, probes: PodProbes
) -> None:
    described(space, 2)
    until_complete(probes, 2)
    first, second = stages(workers)
    before, old = first.lives, second.pod["metadata"]["uid"]
    space.delete(POD, second.name)

    def replaced() -> bool:
        pod = space.get(POD, second.name)
        return pod is not None and pod["metadata"]["uid"] != old

    probes.until(replaced, "another pod has its place")
    probes.until(lambda: first.lives > before, "the first stage has begun again")
    until_complete(probes, 2)
    assert len(stages(workers)) == 2


def test_groups_of_stages_scale_and_roll_without_an_outage(
    space: Space, operator: OperatorProcess, workers: PodWorkers, probes: PodProbes
) -> None:
    described(space, 2)
    until_complete(probes, 2)
    (old,) = groups(space)
    described(space, 2, replicas=2)
    until_complete(probes, 2, replicas=2)
    assert len(groups(space)) == 2
    assert len(addresses(space, "chat")) == 2, "one pod of each answers"
    described(space, 2)
    until_complete(probes, 2)
    space.until(lambda: groups(space) == {old}, "the last group goes whole")
    described(space, 3)
    served: list[bool] = []

    def rolled() -> bool:
        served.append(bool(addresses(space, "chat")))
        return len(groups(space)) == 1 and old not in groups(space)

    probes.until(rolled, "a group of three stages has taken the place of one of two")
    assert all(served)
    until_complete(probes, 3)
    (new,) = groups(space)
    assert space.there(STATEFUL_SET, new)["spec"]["replicas"] == 3
    probes.until(lambda: len(space.items(POD)) == 3, "no pod of the old group is left")


def test_a_model_with_too_few_layers_is_said_with_both_numbers(
    space: Space, operator: OperatorProcess
) -> None:
    described(space, 3)
    space.until(lambda: len(space.pods(Role.TARGET)) == 3, "there are pods")
    (name,) = groups(space)
    space.report_pod(f"{name}-1", crashed(json.dumps({"error": REFUSAL}) + "\n"))
    ended = "CrashLoopBackOff: prepare has ended 4 times, last with exit code 2"
    words = f"stage 2 of 3 ({name}-1): {ended}; it ended with: {REFUSAL}"
    space.until(lambda: words in lack(space), "the worker is quoted")
    found = space.until_condition("chat", "Degraded", "True", "PodsFailing")
    assert REFUSAL in found["message"]


def crashed(log: str) -> Object:
    """What a kubelet reports of a pod whose container prepare ends again and again."""
    prepare = {
        "name": "prepare",
        "image": "none",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": log}},
    }
    ready = {"type": "Ready", "status": "False"}
    return {"initContainerStatuses": [prepare], "conditions": [ready]}


def test_deleting_a_service_takes_all_stages_away(
    space: Space, operator: OperatorProcess, workers: PodWorkers, probes: PodProbes
) -> None:
    described(space, 2)
    until_complete(probes, 2)
    space.delete(SERVICE, "chat")
    space.until(lambda: not space.children("chat"), "its objects are gone")
    workers.wait_for(Role.TARGET, 0)
    assert json.loads(space.kubectl("get", "pods", "-o", "json"))["items"] == []
