"""Suspension, drafts that go and come, and who owns a role's number of replicas."""

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, ROLE_SCALER, SERVICE
from outrider.operator.naming import DELETION_COST
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service

EXTERNAL: Object = {"replicas": None, "scaling": {"mode": "External", "maxReplicas": 5}}


def replicas(space: Space, role: Role) -> int:
    """That its Deployment asks for."""
    return int(space.deployment("chat", role)["spec"]["replicas"])


def until_replicas(space: Space, role: Role, number: int) -> None:
    space.until(lambda: replicas(space, role) == number, f"{number} replicas of {role}")


def test_a_service_at_zero_says_so_once_keeps_all_but_its_pods_and_comes_back(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    """By suspension, and by a number of targets that the service leaves to others."""
    space.apply(service("chat", target={"replicas": None}))
    space.until_at_rest("chat")
    kept = set(space.children("chat"))
    for down, up in (
        (lambda: suspend(space, "Suspended"), lambda: suspend(space, "Running")),
        (lambda: scale_targets(space, 0), lambda: scale_targets(space, 1)),
    ):
        down()
        for role in Role:
            until_replicas(space, role, 0)
            workers.wait_for(role, 0)
        space.until_condition("chat", "TargetAvailable", "False", "ScaledToZero")
        space.until_condition("chat", "DraftAvailable", "False", "ScaledToZero")
        space.until_condition("chat", "SpeculationActive", "False", "NoTargets")
        space.until_condition("chat", "Reconciling", "False", "Complete")
        for kind, reason in (("Degraded", "AsExpected"), ("Stalled", "NotStalled")):
            assert space.condition("chat", kind)["reason"] == reason
        assert set(space.children("chat")) == kept
        before, told = space.status("chat"), space.events("chat")
        operator.wait_for_passes(5)
        assert (space.status("chat"), space.events("chat")) == (before, told)
        up()
        space.until_condition("chat", "Ready", "True", "Serving")
        until_replicas(space, Role.DRAFT, 1)
        space.until_at_rest("chat")
        space.until_condition("chat", "SpeculationActive", "True", "Active")


def suspend(space: Space, word: str) -> None:
    space.patch(SERVICE, "chat", {"spec": {"suspend": word}})


def scale_targets(space: Space, number: int) -> None:
    space.kubectl("scale", "deployment/chat-target", f"--replicas={number}")


def test_a_draft_goes_and_comes_and_no_target_restarts(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    described = service("chat")
    space.apply(described)
    space.until_at_rest("chat")
    (target,) = space.pods(Role.TARGET)
    space.patch(SERVICE, "chat", {"spec": {"draft": None}})
    space.until(lambda: space.get(DEPLOYMENT, "chat-draft") is None, "the draft is gone")
    kept = ("Secret", "chat-draft-certificate")  # goes with the service: nobody deletes Secrets
    space.until(
        lambda: [one for one in space.children("chat") if "draft" in one[1]] == [kept],
        "nothing else of the draft is left",
    )
    space.until_condition("chat", "DraftAvailable", "False", "NotRequired")
    space.until(lambda: space.policy("chat")["drafts"] == [], "targets are told of no draft")
    assert "draft" not in space.status("chat")
    space.patch(SERVICE, "chat", {"spec": {"draft": described["spec"]["draft"]}})
    space.until_condition("chat", "DraftAvailable", "True", "Ready")
    space.until_at_rest("chat")
    assert [pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)] == [
        target["metadata"]["uid"]
    ]


@pytest.mark.parametrize(("inside", "reason"), [("Colocated", "Colocated"), ("SamePod", "Ready")])
def test_a_draft_moves_into_the_target_and_out_again(
    space: Space, operator: OperatorProcess, workers: PodWorkers, inside: str, reason: str
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    space.patch(SERVICE, "chat", {"spec": {"draft": {"placement": inside}}})
    space.until(lambda: space.get(DEPLOYMENT, "chat-draft") is None, "the draft is gone")
    space.until_condition("chat", "DraftAvailable", "True", reason)
    space.until_at_rest("chat")
    space.patch(SERVICE, "chat", {"spec": {"draft": {"placement": "Separate"}}})
    space.until_condition("chat", "DraftAvailable", "True", "Ready")
    space.until_at_rest("chat")


def test_a_number_that_the_service_leaves_out_is_left_to_others(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat", target={"replicas": None}))
    space.until_at_rest("chat")
    assert replicas(space, Role.TARGET) == 1
    space.kubectl("scale", "deployment/chat-target", "--replicas=3")
    operator.wait_for_passes(3)
    workers.wait_for(Role.TARGET, 3)
    assert replicas(space, Role.TARGET) == 3
    space.patch(SERVICE, "chat", {"spec": {"target": {"replicas": 2}}})
    until_replicas(space, Role.TARGET, 2)
    space.kubectl("scale", "deployment/chat-target", "--replicas=4")
    until_replicas(space, Role.TARGET, 2)


def test_an_external_number_comes_through_the_scaler_within_bounds(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    workers.behave(Role.TARGET, running=2)
    space.apply(service("chat", draft={**EXTERNAL, "replicas": None}, target={"replicas": 3}))
    space.until_at_rest("chat")
    external = {"spec": {"target": EXTERNAL}}
    space.patch(SERVICE, "chat", external)  # from Static: it starts with those that run
    space.until(lambda: space.get(ROLE_SCALER, "chat-target") is not None, "it has a scaler")
    assert space.there(ROLE_SCALER, "chat-target")["spec"]["replicas"] == 3
    assert space.there(ROLE_SCALER, "chat-draft")["spec"]["replicas"] == 1
    operator.wait_for_passes(3)
    assert replicas(space, Role.TARGET) == 3
    assert deletion_costs(space) == {None}
    space.kubectl("scale", "specscaler/chat-target", "--replicas=2")
    until_replicas(space, Role.TARGET, 2)
    assert "2" in deletion_costs(space), "of those that go, the first has the fewest requests"
    space.kubectl("scale", "specscaler/chat-target", "--replicas=9")
    until_replicas(space, Role.TARGET, 5)
    space.kubectl("scale", "specscaler/chat-target", "--replicas=0")
    until_replicas(space, Role.TARGET, 1)
    assert space.there(ROLE_SCALER, "chat-target")["spec"]["replicas"] == 0
    space.until(
        lambda: scale(space)["status"].get("replicas") == 1, "the scaler says how many there are"
    )
    assert "outrider.dev/role=target" in scale(space)["status"]["selector"]


def deletion_costs(space: Space) -> set[str | None]:
    metas = (pod["metadata"] for pod in space.pods(Role.TARGET))
    return {meta.get("annotations", {}).get(DELETION_COST) for meta in metas}


def scale(space: Space) -> Object:
    """What an autoscaler reads."""
    found: Object = space.read(ROLE_SCALER, "chat-target", "scale")
    return found


def autoscaler(kind: str, version: str, name: str) -> Object:
    """One that wants 2 replicas whatever is measured: without metrics it keeps its bounds."""
    aim = {"kind": kind, "apiVersion": version, "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": aim,
            "minReplicas": 2,
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 50},
                    },
                }
            ],
        },
    }


def test_a_real_autoscaler_works_through_the_scaler(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat", target=EXTERNAL))
    space.until_at_rest("chat")
    space.until(lambda: space.get(ROLE_SCALER, "chat-target") is not None, "it has a scaler")
    space.apply(autoscaler("SpeculativeRoleScaler", "outrider.dev/v1alpha1", "chat-target"))
    until_replicas(space, Role.TARGET, 2)
    space.until_at_rest("chat")
    workers.wait_for(Role.TARGET, 2)


def test_an_autoscaler_at_a_managed_draft_is_reported_and_left_alone(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    space.apply(autoscaler("Deployment", "apps/v1", "chat-draft"))
    found = space.until_condition("chat", "Degraded", "True", "ReplicasContested")
    assert "sets the draft's replicas, which are the operator's" in found["message"]
    operator.wait_for_passes(4)
    assert replicas(space, Role.DRAFT) == 2
    assert ("Warning", "ReplicasContested") in [told[:2] for told in space.events("chat")]
    space.kubectl("delete", "hpa", "chat-draft")
    space.patch(SERVICE, "chat", {"spec": {"topology": {"policy": "None"}}})
    space.until_condition("chat", "Degraded", "False", "AsExpected")
