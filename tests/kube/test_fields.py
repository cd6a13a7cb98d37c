"""An edit of every field: the right role rolls, or the policy changes, or an object, and no more.

One operator and one service serve all cases; workers are not needed for what objects say.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    DEPLOYMENT,
    INFERENCE_POOL,
    POD_MONITOR,
    ROLE_SCALER,
    SERVICE,
)
from tests.kube import field_cases
from tests.kube.conftest import OPERATORS, lone_operator
from tests.kube.control_plane import ControlPlane
from tests.kube.field_cases import CASES, Case, edit
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.other_kinds import installed
from tests.kube.space import Object, Refused, Space, service
from tests.merge_patch import laid_over

BESIDE = ("version", "drafts", "speculate", "max_rows")
"""Of a policy, what follows the workers and the loop; compared only where a case names it."""
CLAIM = {"type": "PersistentVolumeClaim", "size": "2Gi", "storageClassName": "slow"}
IMMUTABLE: dict[str, tuple[Object, Object, str]] = {
    "a claim's size": (
        {"target": {"cache": CLAIM}},
        {"target": {"cache": {"size": "1Gi"}}},
        "spec.target.cache.size: Invalid value:.*of a claim that was made cannot shrink",
    ),
    "a claim's class": (
        {"draft": {"cache": CLAIM}},
        {"draft": {"cache": {"storageClassName": "fast"}}},
        "spec.draft.cache.storageClassName: Invalid value:.*of a claim that was made cannot change",
    ),
}


@pytest.fixture(scope="module")
def others(control_plane: ControlPlane) -> Iterator[None]:
    """The cluster knows PodMonitors and InferencePools while these tests run."""
    with installed(control_plane, POD_MONITOR, INFERENCE_POOL):
        yield


@pytest.fixture(scope="module")
def shared(
    control_plane: ControlPlane,
    definitions: None,
    others: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operators]:
    """A namespace with one operator."""
    with lone_operator(control_plane, tmp_path_factory.mktemp("fields")) as operators:
        yield operators


@pytest.fixture
def space(shared: Operators, request: pytest.FixtureRequest) -> Space:
    """Where the only service is."""
    request.node.stash[OPERATORS] = shared
    return Space(shared.control_plane, shared.namespace)


@pytest.fixture
def operator(shared: Operators) -> OperatorProcess:
    """The only one."""
    return shared.all[0]


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


def told(space: Space) -> Object:
    """The policy, without what follows others."""
    return {key: value for key, value in space.policy("chat").items() if key not in BESIDE}


def within(live: Any, path: field_cases.Path) -> Any:
    """None where the object is not there yet."""
    for key in path:
        live = None if live is None else live[key]
    return live


def test_every_field_has_a_case() -> None:
    assert sorted(field_cases.leaves()) == sorted(CASES)


@pytest.mark.parametrize(("path", "case"), CASES.items(), ids=list(CASES))
def test_an_edit_changes_what_it_should_and_no_more(path: str, case: Case, space: Space) -> None:
    describe(space, **case.base)
    before, policy = templates(space), told(space)
    space.patch(SERVICE, "chat", {"spec": laid_over(edit(path, case.value), case.beside)})
    space.until_seen("chat")
    after = templates(space)
    assert {role for role in before if role in after and before[role] != after[role]} == case.rolls
    assert told(space) == {**policy, **{k: v for k, v in case.policy.items() if k not in BESIDE}}
    assert case.policy.items() <= space.policy("chat").items()
    if case.sets is None:
        return
    kind, name, where, value = case.sets
    if value is None:
        space.until(lambda: space.get(kind, name) is None, f"{kind.name} {name} is gone")
    else:
        space.until(lambda: within(space.get(kind, name), where) == value, f"{name} has {value}")


@pytest.mark.parametrize(("base", "change", "words"), IMMUTABLE.values(), ids=list(IMMUTABLE))
def test_what_cannot_change_is_refused(
    base: Object, change: Object, words: str, space: Space
) -> None:
    describe(space)
    describe(space, **base)
    with pytest.raises(Refused, match=words):
        space.patch(SERVICE, "chat", {"spec": change})


@pytest.mark.parametrize(("key", "value"), [("service", "other"), ("role", "Target")])
def test_a_scaler_cannot_be_given_another_role(key: str, value: str, space: Space) -> None:
    describe(space, draft={"replicas": None, "scaling": {"mode": "External"}})
    with pytest.raises(Refused, match=f"spec.{key}: Invalid value:.*cannot change"):
        space.patch(ROLE_SCALER, "chat-draft", {"spec": {key: value}})


def test_what_the_api_server_refuses_is_said_and_stops_nothing_else(space: Space) -> None:
    describe(space, target={"cache": {**CLAIM, "size": "1Gi"}})
    before = templates(space)
    space.patch(SERVICE, "chat", {"spec": {"target": {"cache": {"size": "9Gi"}, "image": "new:1"}}})
    found = space.until_condition("chat", "Degraded", "True", "Forbidden")
    assert "PersistentVolumeClaim chat-target-cache: " in found["message"]
    assert templates(space)[Role.TARGET] != before[Role.TARGET]
    describe(space)
    space.until_condition("chat", "Degraded", "False", "AsExpected")


def test_more_targets_start_no_draft_anew(space: Space) -> None:
    describe(space, draft={"engine": None})
    before = templates(space)
    space.patch(SERVICE, "chat", {"spec": {"target": {"replicas": 2}}})
    space.until_seen("chat")
    after = templates(space)
    assert after == before
