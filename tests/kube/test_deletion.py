"""Services that go, with the operator or without; unreadable descriptions; upgrades."""

import contextlib
import copy
import json

import pytest
import yaml
from tools import crds

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.naming import PLURAL
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Refused, Space, service

DEFINITION = next(
    one
    for file in sorted(crds.FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(file.read_text())
    if one["spec"]["names"]["plural"] == PLURAL
)


def uids(space: Space) -> set[str]:
    return {str(pod["metadata"]["uid"]) for role in Role for pod in space.pods(role)}


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.parametrize("down", [False, True], ids=["operator up", "operator down"])
def test_a_deleted_service_leaves_nothing_and_waits_for_nobody(
    propagation: str, down: bool, space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    assert "finalizers" not in space.there(SERVICE, "chat")["metadata"]
    if down:
        operator.kill()
    space.delete(SERVICE, "chat", propagation)
    space.until(lambda: space.get(SERVICE, "chat") is None, "the service is gone")
    space.until(lambda: not space.children("chat"), "its objects are gone")
    space.until(lambda: not uids(space), "its pods are gone")
    assert "Traceback" not in operator.said


def test_what_was_orphaned_is_taken_up_by_a_service_of_its_name(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    before, pods = space.children("chat"), uids(space)
    space.delete(SERVICE, "chat", "Orphan")
    space.until(lambda: space.get(SERVICE, "chat") is None, "the service is gone")
    space.until(lambda: owners(space) == [], "nobody owns its objects")
    space.apply(service("chat"))
    space.until_at_rest("chat")
    uid = space.there(SERVICE, "chat")["metadata"]["uid"]
    space.until(lambda: owners(space) == [uid], "they are its own")
    space.until_condition("chat", "Degraded", "False", "AsExpected")
    assert space.children("chat").keys() >= before.keys()
    assert uids(space) == pods, "no pod is replaced"


def owners(space: Space) -> list[str]:
    """Uids of those who own the children of the service."""
    metas = (one["metadata"] for one in space.children("chat").values())
    return sorted({one["uid"] for meta in metas for one in meta.get("ownerReferences", ())})


def test_a_namespace_is_deleted_while_the_operator_is_down(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    operator.kill()
    name = space.namespace
    space.control_plane.kubectl("delete", "namespace", name, "--wait=true", "--timeout=100s")
    space.control_plane.kubectl("create", "namespace", name)  # for the fixture to delete


def changed_definition(change: str) -> Object:
    """The definition with another value of `spec.suspend`, or without `spec.monitoring`."""
    definition: Object = copy.deepcopy(DEFINITION)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    if change == "value":
        spec["suspend"]["enum"].append("Perhaps")
    else:
        del spec["monitoring"]
    return definition


def define(space: Space, definition: Object) -> None:
    text = json.dumps(definition)
    options = ("--server-side", "--force-conflicts", "-f", "-")
    space.control_plane.kubectl("apply", *options, stdin=text)


def test_a_description_that_cannot_be_read_is_said_and_its_pods_are_left_alone(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    before = uids(space)
    try:
        define(space, changed_definition("value"))

        def taken() -> bool:
            with contextlib.suppress(Refused):
                space.patch(SERVICE, "chat", {"spec": {"suspend": "Perhaps"}})
                return True
            return False

        space.until(taken, "the other definition is served")
        found = space.until_condition("chat", "Degraded", "True", "InvalidSpec")
        assert "spec.suspend" in found["message"]
        space.patch(SERVICE, "chat", {"spec": {"target": {"image": "new:1"}}})
        space.until_seen("chat")
        assert uids(space) == before
        assert ("Warning", "InvalidSpec") in [told[:2] for told in space.events("chat")]
        space.patch(SERVICE, "chat", {"spec": {"suspend": None, "target": {"image": None}}})
        space.until_condition("chat", "Degraded", "False", "AsExpected")
        space.until_at_rest("chat")
        assert uids(space) == before
    finally:
        define(space, DEFINITION)


def test_an_upgrade_of_the_definition_and_the_operator_replaces_no_pod(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    try:
        define(space, changed_definition("newer"))

        def previous() -> bool:
            described = json.dumps(service("chat"))
            tried = ("create", "--dry-run=server", "-o", "json", "-f", "-")
            return "monitoring" not in json.loads(space.kubectl(*tried, stdin=described))["spec"]

        space.until(previous, "the previous definition is served")
        space.apply(service("chat"))
        space.until_at_rest("chat")
        before = uids(space)
        operator.stop()
    finally:
        define(space, DEFINITION)
    space.until(
        lambda: "monitoring" in space.there(SERVICE, "chat")["spec"], "the new definition is served"
    )
    operator.restart()
    operator.wait_for_passes(5)
    space.until_at_rest("chat")
    assert uids(space) == before
