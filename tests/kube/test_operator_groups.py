"""Replicas on several machines, and kinds that other projects bring, on a real API server.

Pods are the real StatefulSet controller's; nothing runs in them, and kwok says that they are ready.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    DEPLOYMENT,
    INFERENCE_POOL,
    LEADER_WORKER_SET,
    NETWORK_SERVICE,
    POD,
    POD_MONITOR,
    SERVICE,
    STATEFUL_SET,
    ObjectKind,
)
from outrider.operator.naming import GROUP_LABEL, MANAGED_BY, POD_INDEX, WORKER_INDEX
from tests.kube.conftest import OPERATORS, lone_operator
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import Operators
from tests.kube.other_kinds import installed
from tests.kube.space import Object, Space, service
from tests.merge_patch import laid_over

SLICES = ObjectKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
TWO = {"tensor": 2, "nodes": 2}
NO_ROOM = {"requests": {"cpu": "1000"}}
PICKER = {"endpointPicker": {"name": "picker", "port": 9003}}


@pytest.fixture(scope="module")
def shared(
    control_plane: ControlPlane, definitions: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operators]:
    """A namespace with one operator."""
    with lone_operator(control_plane, tmp_path_factory.mktemp("groups")) as operators:
        yield operators


@pytest.fixture
def space(shared: Operators, request: pytest.FixtureRequest) -> Iterator[Space]:
    """Where the only service is; nothing is left of it."""
    request.node.stash[OPERATORS] = shared
    space = Space(shared.control_plane, shared.namespace)
    yield space
    assert "Traceback" not in shared.all[0].said
    space.delete(SERVICE, "chat")
    space.until(lambda: not space.children("chat"), "its objects are gone, StatefulSets too")
    space.until(lambda: not space.pods(Role.TARGET), "its pods are gone")


def described(space: Space, **target: Any) -> None:
    """A target on two machines, and no draft; waits until it is complete."""
    begun(space, **target)
    complete(space, target.get("replicas", 1))


def complete(space: Space, replicas: int) -> None:
    """Waits until so many replicas serve, each counted once. Conditions alone may be those of the
    pass that has made the objects, and has not seen them yet."""
    served = f"{replicas}/{replicas}"
    space.until(lambda: space.status("chat")["target"]["ready"] == served, f"{served} serve")
    space.until_condition("chat", "Ready", "True", "Serving")
    space.until_condition("chat", "Progressing", "False", "Complete")


def begun(space: Space, **target: Any) -> None:
    """The same; does not wait until its pods are as it says."""
    wanted = service("chat", draft=None, target=laid_over({"parallelism": TWO}, target))
    if space.get(SERVICE, "chat") is None:
        space.create(SERVICE, wanted)
    else:
        space.replace(SERVICE, "chat", wanted["spec"])
    space.until_seen("chat")


def groups(space: Space) -> set[str]:
    return {one["metadata"]["name"] for one in space.items(STATEFUL_SET)}


def numbers(space: Space) -> list[str]:
    return sorted(pod["metadata"]["labels"][POD_INDEX] for pod in space.pods(Role.TARGET))


def addresses(space: Space, name: str) -> set[str]:
    """Pods behind a Service."""
    slices = space.items(SLICES)
    mine = [s for s in slices if s["metadata"]["labels"]["kubernetes.io/service-name"] == name]
    points = [point for one in mine for point in one.get("endpoints") or ()]
    return {point["targetRef"]["name"] for point in points}


def test_a_target_on_two_machines_comes_up_scales_and_rolls(space: Space) -> None:
    described(space)
    assert space.get(DEPLOYMENT, "chat-target") is None
    (first,) = groups(space)
    assert numbers(space) == ["0", "1"]
    space.until(lambda: addresses(space, "chat") == {f"{first}-0"}, "the first pod answers")
    every = {f"{first}-0", f"{first}-1"}
    space.until(lambda: addresses(space, "chat-target-nodes") == every, "both have names")
    described(space, replicas=2)
    assert numbers(space) == ["0", "0", "1", "1"]
    described(space, replicas=1)
    space.until(lambda: groups(space) == {first}, "the first group is left")
    begun(space, image="worker:2")
    served: list[bool] = []

    def rolled() -> bool:
        served.append(bool(addresses(space, "chat")))
        return len(groups(space)) == 1 and first not in groups(space)

    space.until(rolled, "a new group has taken the old one's place")
    assert all(served)
    complete(space, 1)


def test_a_revision_that_has_no_room_fails_and_the_old_group_serves_on(space: Space) -> None:
    described(space)
    (old,) = groups(space)
    begun(space, resources=NO_ROOM, update={"progressSeconds": 3})
    space.until_condition("chat", "Degraded", "True", "RolloutFailed")
    message = lambda: space.condition("chat", "Degraded")["message"]  # noqa: E731
    space.until(lambda: "Insufficient cpu" in message(), "the scheduler is quoted")
    assert space.condition("chat", "Ready")["reason"] == "RolloutFailed"
    assert space.condition("chat", "TargetAvailable")["status"] == "True", "the old group serves"
    assert old in groups(space)
    assert len(groups(space)) == 2
    described(space)
    space.until(lambda: groups(space) == {old}, "undone, nothing is left of it")
    space.until_condition("chat", "Degraded", "False", "AsExpected")


def test_what_others_do_to_a_group_is_undone(space: Space) -> None:
    described(space)
    (old,) = space.items(STATEFUL_SET)
    space.delete(NETWORK_SERVICE, "chat-target-nodes")
    space.delete(STATEFUL_SET, old["metadata"]["name"])

    def anew() -> bool:
        uids = [one["metadata"]["uid"] for one in space.items(STATEFUL_SET)]
        return len(uids) == 1 and uids[0] != old["metadata"]["uid"]

    space.until(lambda: space.get(NETWORK_SERVICE, "chat-target-nodes") is not None, "names")
    space.until(anew, "there is a group again")
    (name,) = groups(space)

    def settled() -> bool:
        of = [pod["metadata"]["labels"][GROUP_LABEL] for pod in space.pods(Role.TARGET)]
        done = space.condition("chat", "Progressing")["reason"] == "Complete"
        return of == [name, name] and done and space.status("chat")["target"]["ready"] == "1/1"

    space.until(settled, "it serves, and the old pods are gone")
    before = space.there(STATEFUL_SET, name)["spec"]
    other = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}, "replicas": 5}}
    space.patch(STATEFUL_SET, name, other)
    space.until(lambda: space.there(STATEFUL_SET, name)["spec"] == before, "it is as it was")

    def alone() -> bool:
        live = space.there(STATEFUL_SET, name)
        told = live["status"].get("observedGeneration") == live["metadata"]["generation"]
        return told and len(space.items(POD)) == 2

    space.until(alone, "its other pods are gone: while some go, its name is not given again")
    other = {"metadata": {"labels": {MANAGED_BY: "somebody"}}}
    space.patch(STATEFUL_SET, name, other)

    def ours() -> bool:
        labels = space.there(STATEFUL_SET, name)["metadata"]["labels"]
        return bool(labels[MANAGED_BY] != "somebody")

    space.until(ours, "its label is back")
    assert groups(space) == {name}


def test_a_machine_more_or_less_is_a_roll_out(space: Space) -> None:
    described(space, parallelism={"nodes": 1})
    assert groups(space) == set()
    begun(space)
    served: list[set[str]] = []

    def grouped() -> bool:
        served.append(addresses(space, "chat") | addresses(space, "chat-targets"))
        return space.get(DEPLOYMENT, "chat-target") is None

    space.until(grouped, "groups alone")
    (name,) = groups(space)
    assert not any(f"{name}-1" in some for some in served), "a follower answers nobody"
    space.until_condition("chat", "Progressing", "False", "Complete")
    space.until(lambda: addresses(space, "chat") == {f"{name}-0"}, "the first pod answers")
    described(space, parallelism={"nodes": 1})
    space.until(lambda: groups(space) == set(), "one pod alone")
    space.until(lambda: len(space.pods(Role.TARGET)) == 1, "no pod of the group is left")
    (pod,) = space.pods(Role.TARGET)
    space.until(lambda: addresses(space, "chat") == {pod["metadata"]["name"]}, "it answers")


def nodes_of(space: Space, role: Role) -> list[str]:
    """Where a role's pods run, so far."""
    return [pod["spec"]["nodeName"] for pod in space.pods(role) if "nodeName" in pod["spec"]]


def test_drafts_run_where_the_leader_of_a_group_does(space: Space) -> None:
    gpus = {"device": "GPU"}
    target = {"parallelism": {"tensor": 12, "nodes": 2}, "engine": gpus}  # 6 of the 8 of each node
    draft = {"replicas": 2, "scaling": {"mode": "Static"}, "engine": gpus}
    near = {"policy": "Required"}
    space.create(SERVICE, service("chat", target=target, draft=draft, topology=near))
    space.until(lambda: len(nodes_of(space, Role.DRAFT)) == 2, "both drafts have a node")
    (leader,) = (
        pod["spec"]["nodeName"]
        for pod in space.pods(Role.TARGET)
        if pod["metadata"]["labels"][POD_INDEX] == "0"
    )
    assert len({*nodes_of(space, Role.TARGET)}) == 2
    assert {*nodes_of(space, Role.DRAFT)} == {leader}


@pytest.fixture
def others(control_plane: ControlPlane) -> Iterator[None]:
    """The cluster knows the kinds of other projects; ask for it before an operator."""
    with installed(control_plane, LEADER_WORKER_SET, INFERENCE_POOL, POD_MONITOR):
        yield


def as_a_controller_reports(space: Space, name: str, groups: int) -> None:
    """All groups are there and ready."""
    live = space.there(LEADER_WORKER_SET, name)
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), groups)
    status: Object = {"observedGeneration": live["metadata"]["generation"], **counts}
    space.patch(LEADER_WORKER_SET, f"{name}/status", {"status": status})


OTHERS: dict[ObjectKind, tuple[str, Object]] = {
    LEADER_WORKER_SET: ("chat-target", {"startupPolicy": "LeaderReady"}),
    INFERENCE_POOL: ("chat", {"selector": {"matchLabels": {WORKER_INDEX: "1"}}}),
    POD_MONITOR: ("chat", {"podMetricsEndpoints": []}),
}
"""Kinds of other projects: the name of a service's object, and an edit that has to be undone."""


def comes_back_as_it_was(space: Space, kind: ObjectKind, name: str, edit: Object) -> None:
    """Whether it was edited or deleted."""
    before = space.there(kind, name)
    space.patch(kind, name, {"spec": edit})
    space.until(lambda: space.there(kind, name)["spec"] == before["spec"], f"{kind.name} as it was")
    space.delete(kind, name)

    def back() -> bool:
        live = space.get(kind, name)
        another = live is not None and live["metadata"]["uid"] != before["metadata"]["uid"]
        return another and live is not None and live["spec"] == before["spec"]

    space.until(back, f"{kind.name} is back")


def test_leader_worker_sets_and_inference_pools_are_made_where_they_are_known(
    others: None, control_plane: ControlPlane, operators: Operators, namespace: str
) -> None:
    operators.start().wait_until_leading()
    space = Space(control_plane, namespace)
    few = {"maxUnavailable": "10%", "maxSurge": 0}  # of 2 groups less than one
    target = {"parallelism": TWO, "replicas": 2, "update": few}
    wanted = service("chat", draft=None, target=target, inferencePool=PICKER)
    space.create(SERVICE, wanted)
    space.until_seen("chat")
    whole = space.there(LEADER_WORKER_SET, "chat-target")["spec"]
    assert whole["replicas"] == whole["leaderWorkerTemplate"]["size"] == 2
    assert groups(space) == set()
    as_a_controller_reports(space, "chat-target", 2)
    space.until_condition("chat", "Progressing", "False", "Complete")
    pool = space.there(INFERENCE_POOL, "chat")["spec"]
    assert pool["selector"]["matchLabels"][WORKER_INDEX] == "0"
    assert pool["endpointPickerRef"]["port"] == {"number": 9003}
    for kind, (name, edit) in OTHERS.items():
        comes_back_as_it_was(space, kind, name, edit)
    owner = space.there(SERVICE, "chat")["metadata"]["uid"]
    for kind, (name, _) in OTHERS.items():
        (reference,) = space.there(kind, name)["metadata"]["ownerReferences"]
        assert reference["uid"] == owner, "they go with the service"
    space.patch(SERVICE, "chat", {"spec": {"inferencePool": None}})
    space.until(lambda: space.get(INFERENCE_POOL, "chat") is None, "no pool is wanted any more")
