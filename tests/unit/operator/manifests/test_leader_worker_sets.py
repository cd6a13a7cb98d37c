"""Rollouts of a LeaderWorkerSet: what its controller cannot do, the operator makes room for."""

import copy

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import INSTALL_LWS, LEADER_WORKER_SET
from outrider.operator.manifests.groups import leader_worker_set
from outrider.operator.manifests.rollout import Bounds
from outrider.operator.naming import REPLICAS_ANNOTATION, WORKER_GROUP, WORKER_INDEX
from outrider.operator.observed.owner import Owner
from tests.unit.operator.manifests.test_groups import SPEC, aged, changed, named, service
from tests.unit.operator.one_service import OneService

OWNER = Owner("default", "chat", "uid")
TEMPLATE: Object = {"metadata": {"labels": {}, "annotations": {}}, "spec": {}}


def test_where_somebody_else_sets_the_number_there_is_no_surge() -> None:
    spec = leader_worker_set(OWNER, Role.TARGET, 2, TEMPLATE, None, Bounds(4, 2, 2))["spec"]
    rolling = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxUnavailable": 2, "maxSurge": 0}
    assert "replicas" not in spec


def test_all_groups_are_new_and_serve_before_those_beside_them_go() -> None:
    made = service(replicas=3, update={"maxSurge": 2, "maxUnavailable": 0})
    play = RollingSet(made)
    changed(made, image="worker:2")
    play.pass_()
    assert play.groups == (5, "3")
    for group in (4, 3, 2, 1):
        play.take_up(group)
        play.pass_()
        assert play.groups == (5, "3"), "one that is wanted is old"
    play.take_up(0)
    play.pass_()
    assert play.groups == (3, None)


def test_a_single_group_of_a_leader_worker_set_goes_once_another_serves_beside_it() -> None:
    made = service()
    play = RollingSet(made)
    changed(made, image="worker:2")
    play.pass_()
    assert play.groups == (2, "1"), "one more than is wanted"
    assert made.raw["status"]["target"]["ready"] == "1/1"
    assert made.condition("Progressing") == ("True", "RollingOut")
    play.take_up(1, ready=False)
    play.pass_()
    assert play.groups == (2, "1"), "the new one does not serve yet"
    play.take_up(1)
    play.take_up(0, ready=False)
    play.pass_()
    assert play.groups == (2, "1"), "the new one is all that serves"
    play.take_up(0)
    play.pass_()
    assert play.groups == (1, None)


def test_a_roll_out_that_is_undone_takes_the_second_group_back_at_once() -> None:
    made = service()
    play = RollingSet(made)
    changed(made, image="worker:2")
    play.pass_()
    play.take_up(1, ready=False)
    play.pass_()
    made.edit(lambda spec: spec["target"].pop("image"))
    play.pass_()
    assert play.groups == (1, None)


def test_a_new_revision_that_stays_unready_is_a_failed_roll_out_and_the_old_group_serves() -> None:
    made = service(update={"progressSeconds": 60})
    play = RollingSet(made)
    changed(made, image="worker:2")
    play.pass_()
    play.take_up(1, ready=False)
    aged(made, 50)
    made.pass_()
    assert made.condition("Progressing") == ("True", "RollingOut")
    aged(made, 70)
    made.pass_()
    assert made.condition("Progressing") == ("False", "RolloutFailed")
    assert made.condition("Degraded") == ("True", "RolloutFailed")
    assert made.condition("Ready") == ("False", "RolloutFailed")
    assert made.condition("TargetAvailable") == ("True", "Ready"), "the old group serves"
    made.edit(lambda spec: spec["target"].pop("image"))
    play.pass_()
    assert play.groups == (1, None)
    assert made.condition("Degraded") == ("False", "AsExpected")


def test_a_single_group_that_does_not_serve_is_replaced_in_place() -> None:
    made = service(ready=False)
    play = RollingSet(made)
    changed(made, image="worker:2")
    play.pass_()
    assert play.groups == (1, None)


def message(made: OneService, kind: str) -> str:
    found = next(one for one in made.raw["status"]["conditions"] if one["type"] == kind)
    return str(found["message"])


def test_where_the_cluster_does_not_serve_them_the_status_says_how_to_install_them() -> None:
    made = OneService(SPEC, kinds=())
    made.rest(3)
    assert made.cluster.of("Deployment") == []
    assert made.condition("Stalled") == ("True", "Forbidden")
    words = "replicas of several pods need LeaderWorkerSet, which this cluster does not serve"
    said = f"LeaderWorkerSet chat-target: {words}; install it: {INSTALL_LWS}"
    assert message(made, "Degraded") == message(made, "Stalled") == said
    assert made.writes_at_rest() == []
    made.optional_kinds = frozenset({LEADER_WORKER_SET})
    made.restart()
    made.rest(3)
    assert made.condition("Ready") == ("True", "Serving")
    assert made.condition("Stalled") == ("False", "NotStalled")


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
def test_pods_alone_serve_on_where_groups_cannot_take_their_place(strategy: str) -> None:
    made = OneService(SPEC, kinds=())
    two = {"tensor": 4, "nodes": 2}
    update = {"strategy": strategy}
    changed(made, parallelism={"tensor": 4}, update=update)
    made.rest(3)
    (before,) = made.cluster.of("Pod")
    changed(made, parallelism=two)
    made.rest(4)
    assert [pod["metadata"]["uid"] for pod in made.cluster.of("Pod")] == [before["metadata"]["uid"]]
    assert made.condition("TargetAvailable") == ("True", "Ready")
    assert made.condition("Ready") == ("False", "RolloutFailed")
    picked = named(made, "Service", "chat")["spec"]["selector"]
    assert picked.items() <= before["metadata"]["labels"].items()
    assert made.writes_at_rest() == []


class RollingSet:
    """The LeaderWorkerSet of a service whose controller does nothing but what a test says."""

    def __init__(self, made: OneService) -> None:
        self._made = made

    @property
    def groups(self) -> tuple[int, str | None]:
        """How many it has, and how many are wanted where that is said."""
        live = named(self._made, "LeaderWorkerSet", "chat-target")
        return live["spec"]["replicas"], live["metadata"]["annotations"].get(REPLICAS_ANNOTATION)

    def pass_(self) -> None:
        """What the operator does with what it sees, and once more with what it has done."""
        for _ in range(2):
            self._made.now += 16
            self._made.pass_()

    def take_up(self, group: int, ready: bool = True) -> None:
        """The pods of a group are of the newest template."""
        cluster = self._made.cluster
        live = named(self._made, "LeaderWorkerSet", "chat-target")
        labels = live["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]
        like, size = cluster.of("Pod")[:2], live["spec"]["leaderWorkerTemplate"]["size"]
        for number in range(size):
            pod, name = copy.deepcopy(like[number]), f"chat-target-{group}-{number}"
            for old in cluster.of("Pod"):
                mine = old["metadata"]["labels"]
                if (mine[WORKER_GROUP], mine[WORKER_INDEX]) == (str(group), str(number)):
                    cluster.remove(("Pod", "default", old["metadata"]["name"]))
            own = {WORKER_GROUP: str(group), WORKER_INDEX: str(number)}
            pod["metadata"] |= {"name": name, "uid": name, "labels": {**labels, **own}}
            conditions = [{"type": "Ready", "status": str(ready)}]
            made = cluster.put(pod, "controller")
            cluster.put_status(made, {"podIP": "10.1.0.9", "conditions": conditions})
