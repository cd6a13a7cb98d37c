"""The control loop in a cluster: policies reach targets, drafts are given back and come again."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.process import GRPC_PORT
from outrider.contract.settings import Role
from tests.kube.api_proxy import ApiProxy, Asked
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.paired import GOOD, POOR, Paired, spec
from tests.kube.pod_workers import PodWorker, PodWorkers

HELD_SECONDS = 60.0


@pytest.fixture
def pair(control_plane: ControlPlane, definitions: None, namespace: str) -> Paired:
    return Paired(control_plane, namespace)


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "proxy") as proxy:
        yield proxy


def follows(pair: Paired, target: PodWorker) -> bool:
    """Whether a target has the stored policy, which names a draft."""
    if not target.answers:
        return False
    policy = target.state().policy
    return policy.version == pair.policy.get("version") and len(policy.drafts) > 0


def linked(pair: Paired, workers: PodWorkers) -> PodWorker:
    """Applies the service; its target, once it drafts with the stored policy."""
    pair.apply()
    (target,) = workers.wait_for(Role.TARGET, 1)
    workers.wait_for(Role.DRAFT, 1)
    pair.until(lambda: pair.holds("LinkEstablished", "Connected"), "they are linked")
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    pair.until(lambda: follows(pair, target), "the target follows")
    return target


def test_every_target_gets_the_policy_with_the_addresses_of_ready_drafts(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    target = linked(pair, workers)
    (draft,) = workers.wait_for(Role.DRAFT, 1)
    assert target.state().policy.drafts == (f"{draft.ip}:{GRPC_PORT}",)
    version = target.state().policy.version
    target.behave(rates={})
    more = spec()
    more["target"]["replicas"] = 2
    pair.apply(more)
    both = workers.wait_for(Role.TARGET, 2)
    pair.until(lambda: all(follows(pair, one) for one in both), "the new target follows too")
    assert target.state().policy.version >= version
    draft.behave(ready=False)
    pair.control_plane.kubectl("delete", "pod", draft.name, "-n", pair.namespace, "--wait=false")

    def another() -> bool:
        after = [one for one in workers.of(Role.DRAFT) if one.name != draft.name and one.answers]
        wanted = tuple(f"{one.ip}:{GRPC_PORT}" for one in after)  # an address may be used again
        return bool(wanted) and all(one.state().policy.drafts == wanted for one in both)

    pair.until(another, "targets are told of the draft that took its place")


def test_a_worker_of_somebody_else_with_a_targets_labels_is_left_alone(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    target = linked(pair, workers)
    made = pair.deployment(Role.TARGET)
    template = made["spec"]["template"]
    template["metadata"]["labels"]["app"] = "stranger"
    stranger = {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "metadata": {"name": "stranger", "namespace": pair.namespace},
        "spec": {"selector": {"matchLabels": {"app": "stranger"}}, "template": template},
    }
    pair.control_plane.apply(stranger)
    (other,) = (one for one in workers.wait_for(Role.TARGET, 2) if one.name != target.name)
    version = target.state().policy.version
    workers.behave(Role.TARGET, rates=POOR)
    pair.until(lambda: target.state().policy.version > version, "the target has another policy")
    operator.wait_for_passes(5)
    assert other.pushed == []
    assert other.state().policy.version < target.state().policy.version
    assert pair.status["target"]["replicas"] == pair.status["target"]["readyReplicas"] == 1


def test_a_target_that_starts_again_without_a_policy_is_given_it_again(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    target = linked(pair, workers)
    pair.until(lambda: follows(pair, target), "it follows")
    lives, pushed = target.lives, len(target.pushed)
    target.behave(forgets=True)
    target.kill()
    pair.until(lambda: target.lives > lives and follows(pair, target), "it follows again")
    assert len(target.pushed) > pushed


def test_a_policy_is_stored_before_any_target_has_it(
    pair: Paired, workers: PodWorkers, operators: Operators, proxy: ApiProxy
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    operators.start(kubeconfig=proxy.kubeconfig).wait_until_leading()
    target = linked(pair, workers)
    reached, passing = threading.Event(), threading.Event()

    def hold(asked: Asked) -> bool:
        if asked.method != "PATCH" or not asked.about("configmaps", f"{pair.name}-intent"):
            return False
        reached.set()
        return not passing.is_set()

    proxy.silent = hold
    before = target.state().policy.version
    target.behave(rates=POOR)
    assert reached.wait(HELD_SECONDS), "a new policy is about to be stored"
    assert target.state().policy.version == before
    passing.set()
    pair.until(lambda: target.state().policy.version > before, "then it is pushed")


def test_drafts_that_do_not_pay_are_given_back_and_come_again_once_they_do(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    target = linked(pair, workers)
    workers.behave(Role.DRAFT, running=3)
    workers.behave(Role.TARGET, rates=POOR)
    pair.until(lambda: pair.fails("SpeculationActive", "LowGain"), "drafting is off")
    assert not target.state().policy.drafts_allowed
    assert pair.replicas(Role.DRAFT) == 1, "its sessions are still there"
    workers.behave(Role.DRAFT, running=0)
    pair.until(lambda: pair.fails("DraftAvailable", "ScaledToZero"), "the draft is given back")
    workers.wait_for(Role.DRAFT, 0)
    assert pair.replicas(Role.DRAFT) == 0
    assert pair.holds("Ready", "Serving")
    workers.behave(Role.TARGET, rates=GOOD)
    pair.until(lambda: pair.replicas(Role.DRAFT) == 1, "a probe brings the draft back")
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "the probe succeeds")
    assert target.pushed[-1].drafts_allowed
    assert target.pushed[-1].drafts, "the probe began with a linked draft"
    events = [one for one in pair.events if one.startswith(("Draft", "Probe"))]
    assert events[-6:] == [
        "DraftingOff",
        "DraftsScaled",
        "DraftsWaking",
        "DraftsScaled",
        "ProbeStarted",
        "DraftingOn",
    ]


def test_what_is_not_known_changes_nothing(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess
) -> None:
    workers.behave(Role.TARGET, rates=GOOD)
    target = linked(pair, workers)
    before = target.state().policy
    target.pause()
    pair.until(lambda: pair.fails("MetricsAvailable"), "it is said that metrics are missing")
    pair.until(
        lambda: pair.holds("SpeculationActive", "MetricsUnavailable"), "and that nothing changes"
    )
    assert target.name in pair.condition("MetricsAvailable")["message"]
    target.resume()
    pair.until(lambda: pair.holds("MetricsAvailable", "MetricsFound"), "metrics are back")
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it goes on")
    assert target.state().policy == before
    assert pair.replicas(Role.DRAFT) == 1
    assert "DraftingOff" not in pair.events
