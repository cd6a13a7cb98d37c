"""A model in an image, as the page on fitting pods to a cluster writes it in a `podTemplate`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.contract.settings import WorkerSettings
from outrider.operator.cluster.interfaces import Object
from outrider.operator.spec import load
from tests.unit.operator.manifests.test_manifests import made, pod, spec

PAGE = Path(__file__).parents[4] / "docs/how-to/fit-pods-to-a-cluster.md"
IMAGE = {"reference": "registry.example/models/llama:1", "pullPolicy": "IfNotPresent"}
MOUNT = {"name": "model", "mountPath": "/models/llama", "readOnly": True}
SAME_POD = ", placement: SamePod"


def target_of_the_page() -> Object:
    """What the page's example of an image volume says of the target."""
    (block,) = (
        text
        for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
        if "image:" in text
    )
    target: Object = yaml.safe_load(block)["spec"]["target"]
    return target


def service_text(draft: str = "") -> str:
    """The page's target, in flow style, with a draft of the tests beside it."""
    whole = yaml.safe_load(spec(draft=draft))
    return json.dumps({**whole, "target": target_of_the_page()})


def mounts(template: Object, container: str) -> list[Any]:
    """Those of the volume `model` in one container."""
    every = (*template["initContainers"], *template["containers"])
    (found,) = (one for one in every if one["name"] == container)
    return [one for one in found["volumeMounts"] if one["name"] == "model"]


@pytest.mark.parametrize("draft", ["", SAME_POD])
def test_who_fetches_and_who_serves_see_the_image_and_nobody_else(draft: str) -> None:
    template = pod(made(service_text(draft)))
    (volume,) = (one for one in template["volumes"] if one["name"] == "model")
    assert volume == {"name": "model", "image": IMAGE}
    for name in ("prepare", "main"):
        assert mounts(template, name) == [MOUNT]
    for name in ("draft-prepare", "draft") if draft else ():
        assert mounts(template, name) == []


def test_the_operators_own_volumes_stay_beside_it() -> None:
    own, with_image = pod(made(spec())), pod(made(service_text()))
    assert [one["name"] for one in with_image["volumes"]] == [
        *(one["name"] for one in own["volumes"]),
        "model",
    ]
    for kind in ("initContainers", "containers"):
        (before,), (after,) = own[kind], with_image[kind]
        assert after["volumeMounts"] == [*before["volumeMounts"], MOUNT]
        assert after["image"] == before["image"]


def test_the_model_is_read_where_the_image_is_mounted() -> None:
    objects = made(service_text())
    (volume,) = (one for one in pod(objects)["volumes"] if one["name"] == "settings")
    text = objects["ConfigMap", volume["configMap"]["name"]]["data"]["settings.json"]
    assert WorkerSettings.from_json(text).model.uri == f"file://{MOUNT['mountPath']}"


def test_another_image_replaces_the_pods() -> None:
    def revision(text: str) -> str:
        template = made(text)["Deployment", "chat-target"]["spec"]["template"]
        return str(template["metadata"]["labels"]["outrider.dev/revision"])

    text = service_text()
    assert revision(text) == revision(text)
    assert revision(text) != revision(text.replace("models/llama:1", "models/llama:2"))


def test_the_example_is_a_service_that_is_read() -> None:
    document = {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "SpeculativeService",
        "metadata": {"name": "chat"},
        "spec": {"target": target_of_the_page()},
    }
    assert load(json.dumps(document)).spec.target.model.uri == "file:///models/llama"
