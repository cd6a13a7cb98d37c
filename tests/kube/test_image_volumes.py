"""A model in an image on real API servers: with their feature gate `ImageVolume`, and without."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import crds

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.space import Object, Space, service
from tests.kube.test_drift import assert_nobody_asks
from tests.unit.operator.manifests.test_image_volumes import IMAGE, MOUNT, target_of_the_page

GATE = "ImageVolume"
GATE_SINCE = 31
"""Minor version of Kubernetes from which on there is the gate."""


@pytest.fixture(scope="module")
def gated(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A server with the gate, which only keeps objects; it needs none of the other one's."""
    minor = control_plane.minor_version()
    if minor < GATE_SINCE:
        pytest.skip(f"Kubernetes 1.{minor} has no {GATE}")
    folder, options = tmp_path_factory.mktemp("gated"), (f"--feature-gates={GATE}=true",)
    with ControlPlane.started(folder, controllers=False, api_options=options) as gated:
        gated.kubectl("apply", "--server-side", "-f", str(crds.FOLDER))
        gated.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield gated


@pytest.fixture
def gated_operator(gated: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    operator = Operators(gated, tmp_path, "default").start()
    operator.wait_until_leading()
    yield operator
    operator.end()


def pod_of(space: Space) -> Object:
    """What the API server keeps of the target's pods, once it has any."""
    space.until(lambda: space.get(DEPLOYMENT, "chat-target") is not None, "targets are wanted")
    found: Object = space.deployment("chat", Role.TARGET)["spec"]["template"]["spec"]
    return found


def containers(pod: Object) -> list[Object]:
    return [*pod["initContainers"], *pod["containers"]]


def test_pods_mount_the_image_where_the_server_knows_it(
    gated: ControlPlane, gated_operator: OperatorProcess
) -> None:
    space = Space(gated, "default")
    space.apply(service("chat", target=target_of_the_page(), draft=None))
    pod = pod_of(space)
    assert {"name": "model", "image": IMAGE} in pod["volumes"]
    assert all(MOUNT in one["volumeMounts"] for one in containers(pod))
    gated_operator.wait_for_passes(3)
    assert space.condition("chat", "Degraded")["reason"] == "AsExpected"
    assert_nobody_asks(gated_operator)


def test_a_server_without_the_gate_drops_volume_and_mounts_and_is_asked_once(
    control_plane: ControlPlane, space: Space, operator: OperatorProcess
) -> None:
    space.apply(service("chat", target=target_of_the_page(), draft=None))
    if control_plane.minor_version() < GATE_SINCE:
        refused = space.until_condition("chat", "Degraded", "True")
        assert "image: field not declared in schema" in refused["message"]
        return
    pod = pod_of(space)
    if any("image" in volume for volume in pod["volumes"]):
        pytest.skip(f"this Kubernetes has {GATE} on by itself")
    every = (*pod["volumes"], *(m for one in containers(pod) for m in one["volumeMounts"]))
    assert "model" not in {one["name"] for one in every}
    operator.wait_for_passes(3)
    assert space.condition("chat", "Degraded")["reason"] == "AsExpected"
    assert_nobody_asks(operator)
