"""README's commands for Kubernetes, on a real API server; images are not pulled."""

import shlex

import yaml

from tests import readme
from tests.kube.chart import only
from tests.kube.control_plane import ControlPlane

IMAGE = "registry.example/team/outrider-operator"


def test_the_commands_of_readme_are_accepted(control_plane: ControlPlane) -> None:
    (block,) = readme.blocks("On Kubernetes")
    images, install, apply, watch = (shlex.split(line) for line in readme.commands(block))
    assert images[:2] == ["make", "images"]

    assert install[:2] == ["helm", "install"]
    without_waiting = [word for word in install[2:] if word != "--wait"]
    objects = yaml.safe_load_all(control_plane.helm("template", *without_waiting))
    deployment = only([one for one in objects if one], "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(IMAGE)

    assert apply[:2] == ["kubectl", "apply"]
    assert "created" in control_plane.kubectl(*apply[1:], "--dry-run=server")

    assert watch[:2] == ["kubectl", "get"]
    control_plane.kubectl(*(word for word in watch[1:] if word != "--watch"))
