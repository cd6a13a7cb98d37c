"""What pods get for their ranks: GPUs, the device that follows from them, and /dev/shm."""

import json
from typing import Any

import pytest

from outrider.operator.cluster.interfaces import Object
from tests.unit.operator.manifests.test_manifests import made, pod, spec

GPU = ", engine: {device: GPU}"


def group(text: str) -> Object:
    """The pods of a target's groups."""
    (workload,) = (one for (kind, _), one in made(text).items() if kind == "LeaderWorkerSet")
    template: Object = workload["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    return template


def container(text: str, name: str = "main") -> Object:
    template = pod(made(text))
    every = (*template["initContainers"], *template["containers"])
    return next(one for one in every if one["name"] == name)


def limits(text: str, name: str = "main") -> Any:
    return container(text, name).get("resources", {}).get("limits")


def device(text: str) -> Any:
    """Device in the settings that a target starts with."""
    objects = made(text)
    name = pod(objects)["volumes"][0]["configMap"]["name"]
    return json.loads(objects["ConfigMap", name]["data"]["settings.json"])["device"]


def claims(name: str) -> str:
    own = "{name: main, resources: {claims: [{name: %s}]}}"
    return f", podTemplate: {{spec: {{containers: [{own % name}]}}}}"


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("", None),
        (", parallelism: {tensor: 4}", None),
        (", engine: {device: CPU}", None),
        (GPU, {"nvidia.com/gpu": 1}),
        (f"{GPU}, parallelism: {{tensor: 6}}", {"nvidia.com/gpu": 6}),
        (
            f"{GPU}, resources: {{limits: {{memory: 1Gi}}}}",
            {"memory": "1Gi", "nvidia.com/gpu": 1},
        ),
        (f"{GPU}, resources: {{limits: {{nvidia.com/gpu: 2}}}}", {"nvidia.com/gpu": 2}),
        (f"{GPU}, resources: {{limits: {{nvidia.com/gpu: 0}}}}", {"nvidia.com/gpu": 0}),
        (
            f"{GPU}, resources: {{limits: {{nvidia.com/mig-1g.10gb: 1}}}}",
            {"nvidia.com/mig-1g.10gb": 1},
        ),
        (f"{GPU}{claims('two-gpus')}", None),
    ],
)
def test_a_container_asks_for_a_gpu_for_each_rank_unless_it_names_some(
    target: str, found: Any
) -> None:
    assert limits(spec(target)) == found
    assert limits(spec(target), "prepare") == (None if "claims" in target else found)


def test_the_pods_of_a_replica_share_its_ranks() -> None:
    text = spec(f"{GPU}, parallelism: {{tensor: 8, nodes: 2}}")
    (main,) = group(text)["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("", "auto"),
        (", resources: {limits: {nvidia.com/gpu: 1}}", "gpu"),
        (", resources: {limits: {nvidia.com/mig-1g.10gb: 1}}", "gpu"),
        (", resources: {limits: {nvidia.com/gpu: 0}}", "auto"),
        (", resources: {limits: {nvidia.com/gpu: 1}}, engine: {device: CPU}", "cpu"),
        (claims("a-network-card"), "auto"),
    ],
)
def test_a_pod_that_was_given_gpus_never_falls_back_to_processors(target: str, found: str) -> None:
    assert device(spec(target)) == found


def test_stages_compute_on_processors() -> None:
    text = spec(", resources: {limits: {nvidia.com/gpu: 1}}, parallelism: {pipeline: 2}")
    (found,) = (
        json.loads(one["data"]["settings.json"])["device"]
        for (kind, name), one in made(text).items()
        if kind == "ConfigMap" and name.startswith("chat-target-")
    )
    assert found == "auto"


@pytest.mark.parametrize(
    ("target", "size"),
    [
        ("", None),
        (", parallelism: {tensor: 6}", "6Gi"),
    ],
)
def test_ranks_of_one_pod_have_room_for_what_they_exchange(target: str, size: str | None) -> None:
    template = pod(made(spec(target)))
    volumes = [one for one in template["volumes"] if one["name"] == "shared-memory"]
    mounts = {one["mountPath"] for one in template["containers"][0]["volumeMounts"]}
    assert ("/dev/shm" in mounts) is (size is not None)
    memory = {"medium": "Memory", "sizeLimit": size}
    assert volumes == ([] if size is None else [{"name": "shared-memory", "emptyDir": memory}])


def test_ranks_on_machines_of_their_own_share_no_memory() -> None:
    text = spec(", parallelism: {tensor: 2, nodes: 2}")
    assert "shared-memory" not in {volume["name"] for volume in group(text)["volumes"]}


def test_a_draft_in_its_targets_pod_gets_what_its_own_ranks_need() -> None:
    text = spec(
        f"{GPU}, parallelism: {{tensor: 6}}",
        f", placement: SamePod{GPU}, parallelism: {{tensor: 2}}",
    )
    for name, ranks, volume in (("main", 6, "shared-memory"), ("draft", 2, "draft-shared-memory")):
        found = container(text, name)
        assert found["resources"]["limits"] == {"nvidia.com/gpu": ranks}
        mounts = {one["mountPath"]: one["name"] for one in found["volumeMounts"]}
        assert mounts["/dev/shm"] == volume
        (size,) = (one for one in pod(made(text))["volumes"] if one["name"] == volume)
        assert size["emptyDir"]["sizeLimit"] == f"{ranks}Gi"


@pytest.mark.parametrize("parallelism", ["{tensor: 6}", "{}", "{tensor: 2, nodes: 2}"])
@pytest.mark.parametrize(
    ("draft", "name", "volume"),
    [
        ("", "main", "shared-memory"),
        (", placement: SamePod", "draft", "draft-shared-memory"),
        (", placement: SamePod, parallelism: {tensor: 2}", "draft", "draft-shared-memory"),
    ],
)
def test_a_template_gives_any_worker_shared_memory_of_its_own_size(
    parallelism: str, draft: str, name: str, volume: str
) -> None:
    memory = {"medium": "Memory", "sizeLimit": "8Gi"}
    mount = {"name": volume, "mountPath": "/dev/shm"}
    over = {
        "volumes": [{"name": volume, "emptyDir": memory}],
        "containers": [{"name": name, "volumeMounts": [mount]}],
    }
    text = spec(f", parallelism: {parallelism}, podTemplate: {json.dumps({'spec': over})}", draft)
    template = group(text) if "nodes" in parallelism else pod(made(text))
    volumes = [one for one in template["volumes"] if one["name"] == volume]
    assert volumes == [{"name": volume, "emptyDir": memory}]
    (worker,) = (one for one in template["containers"] if one["name"] == name)
    assert [one for one in worker["volumeMounts"] if one["mountPath"] == "/dev/shm"] == [mount]
