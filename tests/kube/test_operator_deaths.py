"""An operator that dies at every write, again and again, ends where one that lives would."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import Role
from tests.kube.api_proxy import ApiProxy, Asked, Killed
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.paired import GOOD, POOR, Paired, spec
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space

MAX_DEATHS = 60
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Fate:
    """Kills an operator at every write: before it is passed on, and once it has been, in turn."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self.deaths: list[str] = []

    def before(self, asked: Asked) -> None:
        if asked.writes and len(self.deaths) % 2 == 0:
            self._kill(f"before {asked.method} {asked.path}")

    def after(self, asked: Asked) -> None:
        if asked.writes and len(self.deaths) % 2 == 1:
            self._kill(f"after {asked.method} {asked.path}")

    def _kill(self, when: str) -> None:
        self.deaths.append(when)
        self._operator.kill()
        raise Killed


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "proxy") as proxy:
        yield proxy


@pytest.fixture
def operator(operators: Operators, proxy: ApiProxy) -> OperatorProcess:
    started = operators.start(kubeconfig=proxy.kubeconfig)
    started.wait_until_leading()
    return started


@pytest.fixture
def pair(control_plane: ControlPlane, definitions: None, namespace: str) -> Paired:
    return Paired(control_plane, namespace)


def unprobed() -> dict[str, Any]:
    """Drafting that is off stays off, however long so many lives take."""
    wanted = spec()
    wanted["speculation"]["control"]["probeIntervalSeconds"] = 3600
    return wanted


def settle(pair: Paired, workers: PodWorkers) -> None:
    """Makes the service, and waits until it drafts."""
    workers.behave(Role.TARGET, rates=GOOD)
    pair.apply(unprobed())
    workers.wait_for(Role.TARGET, 1)
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    pair.until(lambda: pair.fails("Progressing", "Complete"), "it is complete")


def die_until(pair: Paired, operator: OperatorProcess, proxy: ApiProxy, arrived: Any) -> Fate:
    """Restarts the operator at each of its deaths, until the service has `arrived`."""
    fate = Fate(operator)
    proxy.before, proxy.after = fate.before, fate.after

    there = False
    while not there:
        if not operator.alive:
            assert len(fate.deaths) < MAX_DEATHS, fate.deaths
            operator.begin_again()
        pair.until(lambda: arrived() or not operator.alive, f"something; deaths: {fate.deaths}")
        there = arrived()
    return fate


def written(proxy: ApiProxy, plural: str, name: str) -> list[dict[str, Any]]:
    """Every version of an object that was applied, in order."""
    return [one.content for one in proxy.writes if one.about(plural, name)]


def assert_versions_rise(proxy: ApiProxy, pair: Paired) -> None:
    """No version of the policy stands for two policies, and none goes back."""
    stored = written(proxy, "configmaps", f"{pair.name}-intent")
    policies = [json.loads(one["data"]["policy.json"]) for one in stored]
    versions = [policy["version"] for policy in policies]
    assert versions == sorted(versions)
    assert len({json.dumps(policy) for policy in policies}) == len(set(versions))


def replicas(proxy: ApiProxy, pair: Paired, role: Role) -> list[int]:
    """What was asked for of a role, without repetition."""
    asked = written(proxy, "deployments", f"{pair.name}-{role}")
    numbers = [one["spec"]["replicas"] for one in asked]
    return [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n]


def test_drafts_are_given_back_once_by_an_operator_that_dies_at_every_write(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess, proxy: ApiProxy
) -> None:
    settle(pair, workers)
    workers.behave(Role.TARGET, rates=POOR, running=1)
    fate = die_until(pair, operator, proxy, lambda: pair.fails("DraftAvailable", "ScaledToZero"))
    assert any("deployments" in death for death in fate.deaths)
    assert any("configmaps" in death for death in fate.deaths)
    assert_versions_rise(proxy, pair)
    assert replicas(proxy, pair, Role.DRAFT) == [1, 0]
    assert replicas(proxy, pair, Role.TARGET) == [1]
    (target,) = workers.of(Role.TARGET)
    pushed = [policy.version for policy in target.pushed]
    assert pushed == sorted(set(pushed))


def test_a_roll_out_happens_once_by_an_operator_that_dies_at_every_write(
    pair: Paired, workers: PodWorkers, operator: OperatorProcess, proxy: ApiProxy
) -> None:
    settle(pair, workers)
    old = {pod["metadata"]["name"] for pod in pair.pods(Role.TARGET)}
    changed = unprobed()
    changed["target"]["model"]["uri"] = "file:///models/another"
    pair.apply(changed)

    def arrived() -> bool:
        new = {pod["metadata"]["name"] for pod in pair.pods(Role.TARGET)}
        return not new & old and pair.fails("Progressing", "Complete") and generation(pair) == 2

    fate = die_until(pair, operator, proxy, arrived)
    assert any("deployments" in death for death in fate.deaths)
    assert_versions_rise(proxy, pair)
    applied = written(proxy, "deployments", f"{pair.name}-{Role.TARGET}")
    revisions = [
        one["spec"]["template"]["metadata"]["labels"]["outrider.dev/revision"] for one in applied
    ]
    assert len(dict.fromkeys(revisions)) == 2
    assert revisions == sorted(revisions, key=revisions.index), "never back to the old one"
    assert replicas(proxy, pair, Role.TARGET) == replicas(proxy, pair, Role.DRAFT) == [1]


def grouped(image: str) -> dict[str, Any]:
    """A target on two machines, and no draft; nothing to advise."""
    target = {"model": {"uri": "file:///models/target"}, "replicas": 1, "image": image}
    target["parallelism"] = {"tensor": 2, "nodes": 2}
    target["resources"] = {"requests": {"memory": "1Mi"}}
    return {"target": target}


@pytest.mark.usefixtures("leader_worker_sets")
def test_groups_roll_out_once_by_an_operator_that_dies_at_every_write(
    pair: Paired, operator: OperatorProcess, proxy: ApiProxy, namespace: str
) -> None:
    space = Space(pair.control_plane, namespace)
    pair.apply(grouped("worker:1"))
    pair.until(lambda: pair.fails("Progressing", "Complete"), "a group serves")
    old = {pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)}
    pair.apply(grouped("worker:2"))

    def arrived() -> bool:
        new = {pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)}
        rolled = len(new) == 2 and not new & old and generation(pair) == 2
        return rolled and pair.fails("Progressing", "Complete")

    fate = die_until(pair, operator, proxy, arrived)
    assert any("leaderworkersets" in death for death in fate.deaths), fate.deaths
    asked = written(proxy, "leaderworkersets", f"{pair.name}-{Role.TARGET}")
    numbers = [one["spec"]["replicas"] for one in asked]
    assert [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n] == [1, 2, 1]


def generation(pair: Paired) -> int:
    """The newest description that the status speaks of."""
    return int(pair.status.get("observedGeneration", 0))
