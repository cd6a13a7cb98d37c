"""From `kubectl apply` to a pair that is linked: conditions, columns, events, the log."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.spec.conditions import ConditionType
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space, service

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = {
    ConditionType.READY: "Serving",
    ConditionType.TARGET_AVAILABLE: "Ready",
    ConditionType.DRAFT_AVAILABLE: "Ready",
    ConditionType.LINK_ESTABLISHED: "Connected",
    ConditionType.METRICS_AVAILABLE: "MetricsFound",
    ConditionType.PROGRESSING: "Complete",
    ConditionType.DEGRADED: "AsExpected",
}
ELSEWHERE = ("pipeline", "pool-guest")
"""Examples that tests of their own try."""


def volume(name: str, size: str) -> dict[str, Any]:
    """Room that a claim can have, as an administrator provides it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": f"/tmp/{name}"},
        },
    }


@pytest.fixture
def gpu_machine(control_plane: ControlPlane, namespace: str) -> Iterator[None]:
    """What Llama 70B takes for granted: nodes of 8 GPUs with their label, and room."""
    label = "nvidia.com/gpu.present"
    control_plane.kubectl("label", "node", "node-0", "node-1", f"{label}=true")
    sizes = ("420Gi", "400Gi", "20Gi")
    names = [f"{namespace}-{size.lower()}" for size in sizes]
    control_plane.apply(*(volume(*pair) for pair in zip(names, sizes, strict=True)))
    yield
    control_plane.kubectl("delete", "pv", *names, "--wait=false")
    control_plane.kubectl("label", "node", "node-0", "node-1", f"{label}-")


@pytest.mark.parametrize(
    "file",
    [file for file in sorted(EXAMPLES.glob("*.yaml")) if file.stem not in ELSEWHERE],
    ids=lambda file: str(file.stem),
)
def test_an_example_gets_ready_and_linked(
    file: Path, space: Space, operator: OperatorProcess, workers: PodWorkers, gpu_machine: None
) -> None:
    described = yaml.safe_load(file.read_text())
    name = described["metadata"]["name"]
    space.kubectl("apply", "-f", str(file))
    space.until_at_rest(name)

    def good() -> bool:
        found = {c["type"]: c["reason"] for c in space.status(name)["conditions"]}
        return GOOD.items() <= found.items()

    space.until(good, "every condition is as it should be")
    for role in Role:
        wanted = described["spec"][role.value].get("replicas", 1)
        assert space.status(name)[role.value]["ready"] == f"{wanted}/{wanted}"
        workers.wait_for(role, wanted)
    told = {(r["kind"], r["name"]) for r in space.status(name)["resources"]}
    assert told == set(space.children(name))
    assert "Traceback" not in operator.said


def test_a_guest_links_to_the_drafts_of_another_service_and_goes_on_without(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    for name in ("pool", "pool-guest"):
        space.kubectl("apply", "-f", str(EXAMPLES / f"{name}.yaml"))
        space.until_at_rest(name)
    space.until_condition("pool-guest", "LinkEstablished", "True", "Connected")
    space.until_condition("pool-guest", "DraftAvailable", "True", "Ready")
    told = space.policy("pool-guest")["drafts"]
    assert sorted(told) == sorted(space.policy("pool")["drafts"])
    assert len(told) == 2
    assert ("Deployment", "pool-guest-draft") not in space.children("pool-guest")
    space.delete(SERVICE, "pool")
    space.until(lambda: space.policy("pool-guest")["drafts"] == [], "its drafts are gone")
    space.until_condition("pool-guest", "DraftAvailable", "False", "PodsNotReady")
    assert space.condition("pool-guest", "Ready")["status"] == "True"
    assert "Traceback" not in operator.said


def test_columns_show_the_state_at_a_glance(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    space.until(lambda: space.condition("chat", "SpeculationActive")["status"] == "True", "on")
    head, line = space.kubectl("get", "specsvc", "-o", "wide").splitlines()
    shown = dict(zip(head.split(), line.split(), strict=False))
    wanted = {"NAME": "chat", "READY": "True", "REASON": "Serving", "TARGET": "1/1"}
    wanted |= {"DRAFT": "1/1", "ROWS": "16"}
    assert {key: shown[key] for key in wanted} == wanted
    assert f"http://chat.{space.namespace}.svc:8000" in line


def test_events_tell_transitions_once(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    operator.wait_for_passes(4)
    (target,) = space.pods(Role.TARGET)
    space.set_pod_ready(target["metadata"]["name"], False)
    space.until_condition("chat", "Ready", "False", "TargetNotReady")
    operator.wait_for_passes(4)
    space.set_pod_ready(target["metadata"]["name"], True)
    space.until_at_rest("chat")
    told = [(kind, reason) for kind, reason, _ in space.events("chat")]
    assert told.count(("Normal", "Ready")) == 2
    assert told.count(("Warning", "TargetNotReady")) == 1
    assert told.count(("Normal", "LinkEstablished")) in (1, 2)  # a target that is away has no link


def test_events_tell_roll_outs_and_changed_reasons_once(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    def told() -> list[tuple[str, str, str]]:
        words = ("RollingOut", "RolledOut", "TargetNotReady", "Suspended")
        return [one for one in space.events("chat") if one[1] in words]

    space.apply(service("chat"))
    space.until_at_rest("chat")
    before = space.status("chat")["target"]["revision"]
    space.patch(SERVICE, "chat", {"spec": {"target": {"image": "worker:2"}}})
    generation = space.there(SERVICE, "chat")["metadata"]["generation"]
    space.until(
        lambda: space.status("chat")["rolledOutGeneration"] == generation, "it is rolled out"
    )
    space.until_at_rest("chat")
    operator.wait_for_passes(4)
    after = space.status("chat")["target"]["revision"]
    rolled = [
        ("Normal", "RolledOut", "generation 1 is rolled out"),
        ("Normal", "RollingOut", f"target: revision {after} replaces {before}"),
        ("Normal", "RolledOut", f"generation {generation} is rolled out"),
    ]
    assert told() == rolled
    (target,) = space.pods(Role.TARGET)
    space.set_pod_ready(target["metadata"]["name"], False)
    space.until_condition("chat", "Ready", "False", "TargetNotReady")
    operator.wait_for_passes(2)
    space.patch(SERVICE, "chat", {"spec": {"suspend": "Suspended"}})
    space.until_condition("chat", "Ready", "False", "Suspended")
    operator.wait_for_passes(4)
    reasons = [(kind, reason) for kind, reason, _ in told()[len(rolled) :]]
    bad = [("Warning", "TargetNotReady"), ("Warning", "Suspended")]
    assert reasons == [*bad, ("Normal", "RolledOut")], "a suspension is a generation too"


def test_the_log_ends_each_pass_in_one_sentence_and_does_not_repeat_it(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    operator.wait_for_passes(3)
    lines = [one for one in operator.said.splitlines() if f"INFO {space.namespace}/chat: " in one]
    words = [one.split("/chat: ")[1] for one in lines]
    assert words
    assert all(a != b for a, b in itertools.pairwise(words))


def test_a_draft_in_its_targets_pod_is_lost_and_its_target_serves_on(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat", target={"replicas": 2}, draft={"placement": "SamePod"}))
    space.until_at_rest("chat")
    assert ("Deployment", "chat-draft") not in space.children("chat")
    assert len(space.pods(Role.TARGET)) == len(workers.wait_for(Role.DRAFT, 2)) == 2
    assert not space.pods(Role.DRAFT)
    space.until(lambda: space.status("chat")["draft"]["ready"] == "2/2", "both drafts are linked")
    assert space.policy("chat")["drafts"] == ["127.0.0.1:50052"]
    workers.behave(Role.DRAFT, ready=False)
    space.until(lambda: space.status("chat")["draft"]["ready"] == "0/2", "both are lost")
    space.until_condition("chat", "DraftAvailable", "False", "PodsNotReady")
    assert space.condition("chat", "Ready")["reason"] == "Serving"
    assert space.status("chat")["target"]["ready"] == "2/2"
