"""Rollouts: targets side by side, drafts alone, announced outages, failures that stop."""

from collections.abc import Callable
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.naming import role_name
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess
from tests.kube.paired import GOOD, POOR, Paired, spec
from tests.kube.pod_workers import PodWorkers

pytestmark = pytest.mark.usefixtures("operator")
NO_ROOM = {"requests": {"cpu": 1000}}
HELD = "draft replicas wait for the rollout"


@pytest.fixture
def pair(
    control_plane: ControlPlane, definitions: None, namespace: str, workers: PodWorkers
) -> Paired:
    """One that serves and drafts."""
    pair = Paired(control_plane, namespace)
    workers.behave(Role.TARGET, rates=GOOD)
    pair.apply()
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    pair.until(lambda: pair.fails("Progressing", "Complete"), "it is complete")
    return pair


def names(pair: Paired, role: Role) -> set[str]:
    return {pod["metadata"]["name"] for pod in pair.pods(role)}


def ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def changed(role: Role, **fields: Any) -> dict[str, Any]:
    """The description with some fields of a role set."""
    wanted = spec()
    wanted[role] |= fields
    return wanted


def always(holds: Callable[[], bool], broken: list[bool]) -> Callable[[Callable[[], bool]], bool]:
    """What is to hold whenever something is asked."""

    def ask(question: Callable[[], bool]) -> bool:
        broken.append(not holds())
        return question()

    return ask


def test_a_new_target_starts_beside_the_old_one_which_serves_until_then(
    pair: Paired, workers: PodWorkers
) -> None:
    old, drafts = names(pair, Role.TARGET), names(pair, Role.DRAFT)
    broken: list[bool] = []
    serving = always(lambda: any(map(ready, pair.pods(Role.TARGET))), broken)
    pair.apply(changed(Role.TARGET, model={"uri": "file:///models/another"}))
    pair.until(
        lambda: serving(lambda: not names(pair, Role.TARGET) & old), "the old target is gone"
    )
    pair.until(lambda: pair.fails("Progressing", "Complete"), "the rollout is complete")
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    assert not any(broken)
    assert names(pair, Role.DRAFT) == drafts
    strategy = pair.deployment(Role.TARGET)["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "DraftsScaled" not in pair.events


def test_a_change_of_the_draft_leaves_targets_alone(pair: Paired, workers: PodWorkers) -> None:
    targets, old = names(pair, Role.TARGET), names(pair, Role.DRAFT)
    wanted = spec()
    wanted["draft"]["model"]["uri"] = "file:///models/another"
    pair.apply(wanted)
    pair.until(lambda: bool(names(pair, Role.DRAFT)) and not names(pair, Role.DRAFT) & old, "new")
    (target,) = workers.of(Role.TARGET)

    def told() -> bool:
        drafts = [pod["status"].get("podIP") for pod in pair.pods(Role.DRAFT)]
        return [a.partition(":")[0] for a in target.state().policy.drafts] == drafts

    pair.until(told, "the target is told of the new draft")
    pair.until(lambda: pair.holds("LinkEstablished", "Connected"), "they are linked")
    assert names(pair, Role.TARGET) == targets
    assert target.lives == 1


def test_a_target_that_is_recreated_says_the_outage(pair: Paired) -> None:
    old = names(pair, Role.TARGET)
    # No room for the new pod: what is between the two can be seen for as long as the test wants.
    pair.apply(
        changed(
            Role.TARGET,
            model={"uri": "file:///models/another"},
            update={"strategy": "Recreate"},
            resources=NO_ROOM,
        )
    )
    pair.until(lambda: pair.holds("Progressing", "Recreating"), "the outage is announced")
    assert "nobody answers" in pair.condition("Progressing")["message"]
    pair.until(lambda: pair.fails("Ready", "TargetNotReady"), "nobody answers")
    pair.until(lambda: pair.fails("TargetAvailable", "InsufficientCapacity"), "it says why")
    assert "Insufficient cpu" in pair.condition("TargetAvailable")["message"]
    pair.apply(changed(Role.TARGET, update={"strategy": "Recreate"}))
    pair.until(lambda: pair.fails("Progressing", "Complete"), "it is complete")
    assert pair.holds("Ready", "Serving")
    assert not names(pair, Role.TARGET) & old


def test_a_roll_out_that_fails_stops_says_why_and_the_old_target_serves_on(pair: Paired) -> None:
    old = names(pair, Role.TARGET)
    pair.apply(changed(Role.TARGET, resources=NO_ROOM, update={"progressSeconds": 5}))
    pair.until(lambda: pair.fails("Progressing", "RolloutFailed"), "the rollout has failed")
    pair.until(lambda: pair.holds("Degraded", "RolloutFailed"), "it is degraded")
    message = pair.condition("Degraded")["message"]
    assert message.startswith("target: ")
    assert "Insufficient cpu" in message, "the scheduler is quoted"
    assert "spec.target.update.maxSurge: 0" in message, "there is a way without spare room"
    assert "what ran before keeps running" in message
    assert pair.fails("Ready", "RolloutFailed"), "the newest generation is not what serves"
    assert pair.holds("TargetAvailable", "Ready")
    assert pair.holds("Stalled", "RolloutFailed")
    assert any(ready(pod) for pod in pair.pods(Role.TARGET) if pod["metadata"]["name"] in old)
    assert "RolloutFailed" in pair.events
    pair.apply(changed(Role.TARGET))
    pair.until(lambda: pair.fails("Degraded", "AsExpected"), "undone, all is well")
    assert old == names(pair, Role.TARGET)


@pytest.mark.parametrize("how", ["kubectl", "annotation"])
def test_a_restart_replaces_the_pods_of_a_deployment_and_is_kept(pair: Paired, how: str) -> None:
    old, drafts = names(pair, Role.TARGET), names(pair, Role.DRAFT)
    if how == "kubectl":
        restarted = f"deployment/{role_name(pair.name, Role.TARGET)}"
        pair.control_plane.kubectl("-n", pair.namespace, "rollout", "restart", restarted)
    else:
        where = ("-n", pair.namespace, "annotate", "specsvc", pair.name)
        pair.control_plane.kubectl(*where, "outrider.dev/restarted-at=now")
    pair.until(lambda: not names(pair, Role.TARGET) & old, "its pods are new")
    pair.until(lambda: pair.fails("Progressing", "Complete"), "it is complete")
    assert pair.holds("Ready", "Serving")
    restarts_drafts = how == "annotation"
    pair.until(lambda: bool(names(pair, Role.DRAFT) & drafts) is not restarts_drafts, "so many")
    new = names(pair, Role.TARGET)
    pair.apply(changed(Role.DRAFT, image="worker:2"))
    pair.until(lambda: pair.fails("Progressing", "Complete"), "an edit of the draft is complete")
    assert names(pair, Role.TARGET) == new, "nobody takes the restart back"


def test_replicas_of_drafts_stay_as_they_are_during_a_roll_out(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    pair.apply(changed(Role.TARGET, resources=NO_ROOM))
    pair.until(lambda: len(names(pair, Role.TARGET)) == 2, "the rollout has begun")
    workers.behave(Role.TARGET, rates=POOR)
    pair.until(lambda: pair.fails("SpeculationActive", "LowGain"), "drafting goes off")
    pair.until(lambda: HELD in operator.said, "they would be given back, but for the rollout")
    assert pair.replicas(Role.DRAFT) == 1
    pair.apply()
    pair.until(lambda: pair.fails("DraftAvailable", "ScaledToZero"), "after it they are given back")
