"""A newer operator, and newer definitions, under services that run: no pod goes unasked.

The operator before it is today's with another worker image and without certificates, so that its
pods start from other settings, or, where OUTRIDER_PREVIOUS names a checkout of another version,
that version's own with its own definitions. OUTRIDER_UPGRADE_SERVICES says how many services there
are.
"""

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, POD, SERVICE
from outrider.operator.naming import RESTARTED_ANNOTATION, ROLE_LABEL, SERVICE_LABEL
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service
from tests.kube.test_deletion import DEFINITION, define

NAMES = tuple(
    f"chat-{number}" for number in range(int(os.environ.get("OUTRIDER_UPGRADE_SERVICES", "4")))
)
PREVIOUS = os.environ.get("OUTRIDER_PREVIOUS")
UNLIKE_TODAYS = () if PREVIOUS else ("--peer-certificates=off",)
OLD_IMAGE = "outrider-worker:previous"
NEWER = "spec.target.newer"

pytestmark = pytest.mark.usefixtures("workers")


def arguments(space: Space, *more: str) -> tuple[str, ...]:
    own = ("--namespace", space.namespace, "--lease-namespace", space.namespace)
    return (*own, *more)


@pytest.fixture
def previous(operators: Operators, space: Space, workers: PodWorkers) -> OperatorProcess:
    """The operator before, with all services at rest."""
    sources = Path(PREVIOUS) if PREVIOUS else None
    if sources is not None:
        file = sources / "charts/outrider/files/crds" / f"{DEFINITION['metadata']['name']}.yaml"
        define(space, yaml.safe_load(file.read_text()))
    given = arguments(space, "--worker-image", OLD_IMAGE, *UNLIKE_TODAYS)
    operator = operators.start(given, sources=sources)
    operator.wait_until_leading()
    space.apply(*map(service, NAMES))
    for name in NAMES:
        space.until_at_rest(name)
    return operator


@pytest.fixture
def newer_definition(space: Space) -> Iterator[Object]:
    """One with a field that no operator knows, and that every service has by default."""
    definition: Object = copy.deepcopy(DEFINITION)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    target = schema["properties"]["spec"]["properties"]["target"]["properties"]
    target["newer"] = {"type": "string", "default": "yes"}
    yield definition
    define(space, DEFINITION)


def pods(space: Space) -> set[str]:
    """The uids of all pods of services."""
    every = (pod["metadata"] for pod in space.items(POD))
    return {meta["uid"] for meta in every if ROLE_LABEL in meta.get("labels", {})}


def templates(space: Space) -> dict[str, Object]:
    return {one["metadata"]["name"]: one["spec"]["template"] for one in space.items(DEPLOYMENT)}


def targets(space: Space) -> dict[str, Object]:
    """The Deployments of targets as they are at one time, by their services."""
    labelled = ((one["metadata"]["labels"], one) for one in space.items(DEPLOYMENT))
    return {
        labels[SERVICE_LABEL]: one for labels, one in labelled if labels[ROLE_LABEL] == Role.TARGET
    }


def is_new(deployment: Object) -> bool:
    (main,) = deployment["spec"]["template"]["spec"]["containers"]
    return bool(main["image"] != OLD_IMAGE)


def new(space: Space) -> set[str]:
    """The services whose targets have the template of today's operator."""
    return {name for name, one in targets(space).items() if is_new(one)}


def ready_since(space: Space) -> dict[str, tuple[str, str]]:
    """Status of each service's Ready, and since when: any other status between changes that."""
    found = {name: space.condition(name, "Ready") for name in NAMES}
    return {name: (one["status"], one["lastTransitionTime"]) for name, one in found.items()}


def waits(space: Space, name: str) -> bool:
    status = space.status(name)
    return all(status.get(role, {}).get("nextRevision") for role in Role)


def test_a_newer_operator_and_newer_definitions_replace_no_pod_unasked(
    previous: OperatorProcess, operators: Operators, space: Space, newer_definition: Object
) -> None:
    before, uids, ready = templates(space), pods(space), ready_since(space)
    assert {status for status, _ in ready.values()} == {"True"}
    define(space, newer_definition)

    def ignored(name: str) -> bool:
        return any(one.startswith(f"{NEWER}: ") for one in space.status(name).get("advice", ()))

    space.until(lambda: all(map(ignored, NAMES)), "the operator ignores what it does not know")
    assert previous.stop() == 0
    today = operators.start()
    today.wait_until_leading()
    space.until(lambda: all(waits(space, name) for name in NAMES), "they say what waits")
    today.wait_for_passes(2 * len(NAMES))
    assert templates(space) == before
    assert pods(space) == uids
    assert ready_since(space) == ready
    first = NAMES[0]
    space.patch(SERVICE, first, {"metadata": {"annotations": {RESTARTED_ANNOTATION: "now"}}})
    space.until(lambda: new(space) == {first}, "its pods are replaced")
    space.until(lambda: not space.status(first)["target"].get("nextRevision"), "it says so")
    space.until_at_rest(first)
    today.wait_for_passes(len(NAMES))
    assert {name for name in before if templates(space)[name] != before[name]} == {
        f"{first}-{role}" for role in Role
    }
    assert ready_since(space) == ready
