"""Whose pods are: by the uids of what controls them, each of which is read once."""

import asyncio
from collections.abc import Iterable
from typing import Any

from outrider.operator.cluster.pod_controllers import (
    AGAIN_SECONDS,
    MAX_AT_ONCE,
    PodControllers,
    controller_of,
)
from tests.unit.operator.small_cluster import SmallCluster
from tests.unit.operator.small_controllers import reference

SPACE = "models"
Object = dict[str, Any]


class Scene:
    """A cluster in which things control things."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = SmallCluster()
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
    scene.put("Pod", "a", scene.put("ReplicaSet", "chat-target-1", scene.workload))
    forged = scene.put("Pod", "forged", scene.cluster.of("ReplicaSet")[0])
    forged["metadata"]["ownerReferences"][0]["uid"] = "mine"
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


def test_what_is_gone_is_forgotten() -> None:
    scene = Scene()
    made = scene.put("ReplicaSet", "chat-target-1", scene.workload)
    pod = scene.put("Pod", "a", made)
    assert scene.own() == ["a"]
    assert scene.own(()) == []
    assert scene.controllers.own((pod,)) == []
    assert scene.own() == ["a"]
    assert len(scene.reads) == 2
