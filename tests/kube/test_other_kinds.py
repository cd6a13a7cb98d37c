"""Kinds that other projects bring, on a real API server: their objects come, are repaired, and go.

Nobody acts on them; `test_leader_worker_sets` has a controller.
"""

from collections.abc import Iterator

import pytest

from outrider.operator.cluster.kinds import (
    INFERENCE_POOL,
    LEADER_WORKER_SET,
    POD_MONITOR,
    SERVICE,
    ObjectKind,
)
from outrider.operator.naming import WORKER_INDEX
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import Operators
from tests.kube.other_kinds import installed
from tests.kube.space import Object, Space, service

PICKER = {"endpointPicker": {"name": "picker"}}


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
    target = {"parallelism": {"tensor": 2, "nodes": 2}, "replicas": 2, "update": few}
    wanted = service("chat", draft=None, target=target, inferencePool=PICKER)
    space.create(SERVICE, wanted)
    space.until_seen("chat")
    whole = space.there(LEADER_WORKER_SET, "chat-target")["spec"]
    assert whole["replicas"] == whole["leaderWorkerTemplate"]["size"] == 2
    as_a_controller_reports(space, "chat-target", 2)
    space.until_condition("chat", "Progressing", "False", "Complete")
    pool = space.there(INFERENCE_POOL, "chat")["spec"]
    assert pool["selector"]["matchLabels"][WORKER_INDEX] == "0"
    assert pool["endpointPickerRef"]["port"] == {"number": 9002}
    for kind, (name, edit) in OTHERS.items():
        comes_back_as_it_was(space, kind, name, edit)
    owner = space.there(SERVICE, "chat")["metadata"]["uid"]
    for kind, (name, _) in OTHERS.items():
        (reference,) = space.there(kind, name)["metadata"]["ownerReferences"]
        assert reference["uid"] == owner, "they go with the service"
    space.patch(SERVICE, "chat", {"spec": {"inferencePool": None}})
    space.until(lambda: space.get(INFERENCE_POOL, "chat") is None, "no pool is wanted any more")
