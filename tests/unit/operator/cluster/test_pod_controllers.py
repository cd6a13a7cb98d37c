"""Whose pods are: by the uids of what controls them, each of which is read once."""

import asyncio
from collections.abc import Iterable

import pytest

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import ObjectKind
from outrider.operator.cluster.pod_controllers import (
    AGAIN_SECONDS,
    MAX_AT_ONCE,
    PodControllers,
    controller_of,
)
from tests.unit.operator.small_cluster import SmallCluster
from tests.unit.operator.small_controllers import reference

SPACE = "models"


class Answers(SmallCluster):
    """A cluster with other answers to some names: errors at once, all else a moment later."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, ClusterError | Object] = {}
        self.asked: list[str] = []
        self.ended: list[str] = []

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        self.asked.append(name)
        said = self.said.get(name)
        if isinstance(said, ClusterError):
            raise said
        await asyncio.sleep(0)
        self.ended.append(name)
        return await super().get(kind, namespace, name) if said is None else said


class Scene:
    """A cluster in which things control things."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = Answers()
        self.reads: list[str] = []
        self.cluster.refuse = self._count
        self.controllers = PodControllers(self.cluster, SPACE, lambda: self.now)
        self.workload = self.put("Deployment", "chat-target")

    def put(self, kind: str, name: str, owner: Object | None = None) -> Object:
        meta: Object = {"namespace": SPACE, "name": name}
        if owner is not None:
            meta["ownerReferences"] = [reference(owner)]
        version = "v1" if kind == "Pod" else "apps/v1"
        return self.cluster.put({"apiVersion": version, "kind": kind, "metadata": meta})

    def forge(self, pod: str, made: Object, **changes: str) -> None:
        """A stranger's pod that says of its controller what another's says, but for changes."""
        owners = self.put("Pod", pod, made)["metadata"]["ownerReferences"]
        owners[0].update(changes)

    def own(self, pods: Iterable[Object] | None = None, service: str = "service") -> list[str]:
        """Names of the pods that are the service's, after one reading."""
        every = self.cluster.of("Pod") if pods is None else list(pods)
        workloads = {self.workload["metadata"]["uid"]}
        asyncio.run(self.controllers.read(service, workloads, every))
        return [pod["metadata"]["name"] for pod in self.controllers.own(every)]

    def _count(self, verb: str, kind: str) -> None:
        if verb == "get":
            self.reads.append(kind)


def test_pods_of_the_workloads_replica_set_are_its_own_and_cost_one_reading() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    for name in ("a", "b"):
        scene.put("Pod", name, made)
    assert scene.own() == ["a", "b"]
    scene.put("Pod", "c", made)
    scene.now += 10 * AGAIN_SECONDS
    assert scene.own() == ["a", "b", "c"]
    assert scene.reads == ["ReplicaSet"]


def test_pods_of_nobody_of_a_job_and_of_other_workloads_are_not() -> None:
    scene = Scene()
    scene.put("Pod", "bare")
    scene.put("Pod", "of-job", scene.put("Job", "chat-target-job"))
    other = scene.put("Deployment", "other")
    scene.put("Pod", "of-other", scene.put("ReplicaSet", "other-1", other))
    scene.put("Pod", "of-bare-set", scene.put("ReplicaSet", "chat-target-2"))
    assert scene.own() == []
    assert len(scene.reads) == 2, "a bare pod and a job's have nothing to read"


def test_an_owner_that_does_not_control_counts_for_nothing() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    pod = scene.put("Pod", "a", made)
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    assert scene.own() == []


def test_a_name_without_its_uid_counts_for_nothing() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    scene.put("Pod", "a", made)
    scene.forge("forged", made, uid="mine")
    assert scene.own() == ["a"]


@pytest.mark.parametrize("pod", ["0-before", "z-after"])
@pytest.mark.parametrize("change", [{"name": "other"}, {"kind": "StatefulSet"}])
def test_a_uid_with_another_name_or_kind_hides_no_pod(pod: str, change: dict[str, str]) -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    scene.put("Pod", "a", made)
    scene.forge(pod, made, **change)
    assert scene.own() == ["a"]


@pytest.mark.parametrize(
    "name",
    ["", "..", "a/status", "../../../../../version", "x?limit=1", "a..b", "A", "a\n", "a" * 254],
)
def test_what_can_be_no_objects_name_is_not_asked_for(name: str) -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    scene.put("Pod", "a", made)
    scene.forge("forged", made, name=name)
    assert scene.own() == ["a"]
    assert scene.cluster.asked == ["chat-target-1"]


@pytest.mark.parametrize("name", ["a", "0.a-b.c", "a" * 253])
def test_what_can_be_an_objects_name_is(name: str) -> None:
    scene = Scene()
    scene.put("Pod", "a", scene.put("ReplicaSet", name, scene.workload))
    assert scene.own() == ["a"]


@pytest.mark.parametrize("status", [400, 403, 405, 410, 414])
def test_what_may_not_be_read_is_a_strangers_for_a_while(status: int) -> None:
    scene = Scene()
    scene.put("Pod", "a", scene.put("ReplicaSet", "chat-target-1", scene.workload))
    scene.put("Pod", "b", scene.put("ReplicaSet", "chat-target-2", scene.workload))
    scene.cluster.said["chat-target-2"] = ClusterError("get", status, "no")
    for _ in range(2):
        assert scene.own() == ["a"]
    assert scene.cluster.asked == ["chat-target-1", "chat-target-2"]
    scene.cluster.said.clear()
    scene.now += AGAIN_SECONDS
    assert scene.own() == ["a", "b"]


@pytest.mark.parametrize("status", [0, 401, 408, 429, 500, 503])
def test_what_cannot_be_read_at_the_moment_is_an_error_once_all_reads_have_ended(
    status: int,
) -> None:
    scene = Scene()
    scene.put("Pod", "a", scene.put("ReplicaSet", "chat-target-1", scene.workload))
    pod = scene.put("Pod", "b", scene.put("ReplicaSet", "chat-target-2", scene.workload))
    scene.cluster.said["chat-target-1"] = ClusterError("get", status, "later")
    with pytest.raises(ClusterError, match="later"):
        scene.own()
    assert scene.cluster.ended == ["chat-target-2"]
    assert scene.controllers.own((pod,)) == [pod]
    scene.cluster.said.clear()
    assert scene.own() == ["a", "b"]


@pytest.mark.parametrize("answer", [{}, {"major": "1"}, {"metadata": {}}])
def test_an_answer_that_is_no_object_is_not_the_services(answer: Object) -> None:
    scene = Scene()
    scene.put("Pod", "a", scene.put("ReplicaSet", "chat-target-1", scene.workload))
    scene.put("Pod", "b", scene.put("ReplicaSet", "chat-target-2", scene.workload))
    scene.cluster.said["chat-target-2"] = answer
    assert scene.own() == ["a"]


def test_pods_of_a_group_are_its_leaders_and_followers() -> None:
    scene = Scene()
    leader = scene.put("Pod", "chat-0", scene.put("StatefulSet", "chat", scene.workload))
    scene.put("Pod", "chat-0-1", scene.put("StatefulSet", "chat-0", leader))
    stranger = scene.put("Pod", "stranger")
    scene.put("Pod", "stranger-1", scene.put("StatefulSet", "stranger", stranger))
    assert scene.own() == ["chat-0", "chat-0-1"]


def test_pods_that_outlive_their_workload_stay_the_services() -> None:
    scene = Scene()
    scene.put("Pod", "a", scene.put("ReplicaSet", "chat-target-1", scene.workload))
    assert scene.own() == ["a"]
    scene.workload = scene.put("Deployment", "chat-target")
    assert scene.own() == ["a"]
    assert scene.own(service="another of its name") == []


def test_strangers_are_read_again_seldom_and_a_few_at_a_time() -> None:
    scene = Scene()
    for number in range(MAX_AT_ONCE + 1):
        scene.put("Pod", f"p{number}", scene.put("ReplicaSet", f"s{number}"))
    assert scene.own() == []
    assert len(scene.reads) == MAX_AT_ONCE
    assert scene.own() == []
    assert scene.own() == []
    assert len(scene.reads) == MAX_AT_ONCE + 1
    first = scene.cluster.of("ReplicaSet")[0]
    first["metadata"]["ownerReferences"] = [reference(scene.workload)]
    scene.now += AGAIN_SECONDS
    adopted = [
        pod["metadata"]["name"]
        for pod in scene.cluster.of("Pod")
        if controller_of(pod)["uid"] == first["metadata"]["uid"]
    ]
    scene.own()
    assert scene.own() == adopted


def test_names_that_strangers_make_up_for_one_uid_are_read_a_few_at_a_time() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    scene.put("Pod", "a", made)
    for number in range(2 * MAX_AT_ONCE):
        scene.forge(f"p{number}", made, name=f"s{number}")
    assert scene.own() == ["a"]
    assert len(scene.reads) == MAX_AT_ONCE


def test_what_is_gone_is_forgotten() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    pod = scene.put("Pod", "a", made)
    assert scene.own() == ["a"]
    assert scene.own(()) == []
    assert scene.controllers.own((pod,)) == []
    assert scene.own() == ["a"]
    assert len(scene.reads) == 2
