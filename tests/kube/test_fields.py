"""Edits of fields whose effect depends on a real API server: defaults, lists, other definitions.

`tests/unit/operator/test_fields` tries every field. One operator and one service serve all cases;
workers are not needed for what objects say.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, INFERENCE_POOL, LEADER_WORKER_SET, SERVICE
from tests.kube.conftest import OPERATORS, lone_operator
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import Operators
from tests.kube.other_kinds import installed
from tests.kube.space import Object, Space, service
from tests.merge_patch import laid_over
from tests.unit.operator.field_cases import CASES, edit, within

ON_A_SERVER = {
    "target.update.strategy": "the server has defaults for rolling updates, which have to go",
    "draft.cache.storageClassName": "a claim with a class is made, and mounted",
    "target.parallelism.nodes": "a Deployment becomes a LeaderWorkerSet",
    "draft.placement": "a Deployment goes, with its pods",
    "networkPolicy.clientNamespaces": "the list of peers has no merge key",
    "inferencePool.endpointPicker.failureMode": "an InferencePool has rules of its own",
}
"""Paths of cases that depend on what a real server does, and why."""
CLAIM = {"type": "PersistentVolumeClaim", "size": "1Gi", "storageClassName": "slow"}


@pytest.fixture(scope="module")
def shared(
    control_plane: ControlPlane, definitions: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operators]:
    """A namespace with one operator, in a cluster that knows kinds of others."""
    with (
        installed(control_plane, INFERENCE_POOL, LEADER_WORKER_SET),
        lone_operator(control_plane, tmp_path_factory.mktemp("fields")) as operators,
    ):
        yield operators


@pytest.fixture
def space(shared: Operators, request: pytest.FixtureRequest) -> Space:
    """Where the only service is."""
    request.node.stash[OPERATORS] = shared
    return Space(shared.control_plane, shared.namespace)


def describe(space: Space, **spec: Any) -> None:
    """Makes the service's spec this, whatever it was, and waits until its objects are so."""
    wanted = service("chat", draft={"engine": {"maxRunning": 8}})
    wanted["spec"] = laid_over(wanted["spec"], spec)
    if space.get(SERVICE, "chat") is None:
        space.create(SERVICE, wanted)
    else:
        space.replace(SERVICE, "chat", wanted["spec"])
    space.until_seen("chat")


def templates(space: Space) -> dict[Role, Object]:
    """The pod template of each role that has pods."""
    found = {role: space.get(DEPLOYMENT, f"chat-{role}") for role in Role}
    return {role: one["spec"]["template"] for role, one in found.items() if one is not None}


@pytest.mark.parametrize("path", ON_A_SERVER)
def test_an_edit_changes_what_it_should_and_no_more(path: str, space: Space) -> None:
    case = CASES[path]
    describe(space, **case.base)
    before = templates(space)
    space.patch(SERVICE, "chat", {"spec": laid_over(edit(path, case.value), case.beside)})
    space.until_seen("chat")
    after = templates(space)
    assert {role for role in before if role in after and before[role] != after[role]} == case.rolls
    assert case.sets is not None
    kind, name, where, value = case.sets
    space.until(lambda: within(space.get(kind, name), where) == value, f"{name} has {value}")


def test_what_the_api_server_refuses_is_said_and_stops_nothing_else(space: Space) -> None:
    describe(space, target={"cache": CLAIM})
    before = templates(space)
    space.patch(SERVICE, "chat", {"spec": {"target": {"cache": {"size": "9Gi"}, "image": "new:1"}}})
    found = space.until_condition("chat", "Degraded", "True", "Forbidden")
    assert "PersistentVolumeClaim chat-target-cache: " in found["message"]
    assert templates(space)[Role.TARGET] != before[Role.TARGET]
    describe(space)
    space.until_condition("chat", "Degraded", "False", "AsExpected")
