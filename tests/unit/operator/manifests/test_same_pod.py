"""A draft in its target's pod: what its containers share, and what each has for itself."""

import json
from typing import Any

import pytest

from outrider.contract.settings import WorkerSettings
from outrider.operator.cluster.interfaces import Object
from outrider.operator.naming import REVISION_LABEL, ROLE_LABEL, SETTINGS_ANNOTATION
from tests.unit.operator.manifests.test_manifests import made, pod, spec

SAME_POD = ", placement: SamePod"
OWN = ", resources: {limits: {nvidia.com/gpu: 2}}, parallelism: {tensor: 2}, image: 'small:1'"


def containers(text: str) -> dict[str, Object]:
    """Every container of the target's pods, by name."""
    template = pod(made(text))
    every = (*template["initContainers"], *template["containers"])
    assert len({container["name"] for container in every}) == len(every)
    return {container["name"]: container for container in every}


def settings_in(text: str) -> tuple[WorkerSettings, WorkerSettings]:
    """What target and draft start with, read as they read it."""
    objects, template = made(text), pod(made(text))
    maps = {v["name"]: v["configMap"]["name"] for v in template["volumes"] if "configMap" in v}
    texts = (
        objects["ConfigMap", maps[name]]["data"]["settings.json"]
        for name in ("settings", "draft-settings")
    )
    target, draft = (WorkerSettings.from_json(found) for found in texts)
    return target, draft


def test_the_draft_is_a_container_beside_the_target_s() -> None:
    found = containers(spec(draft=SAME_POD))
    assert [*found] == ["prepare", "draft-prepare", "main", "draft"]
    assert found["main"]["args"][0] == "serve"
    assert found["draft"]["args"][0] == "keep"


def test_a_draft_has_no_pods_of_its_own_and_nothing_that_goes_with_them() -> None:
    objects = made(spec(draft=SAME_POD))
    names = {(kind, name) for kind, name in objects if "draft" in name}
    assert {kind for kind, _ in names} == {"ConfigMap"}
    assert len(names) == 1


def test_a_lost_draft_cannot_make_its_target_s_pod_unready() -> None:
    draft = containers(spec(draft=SAME_POD))["draft"]
    assert not [key for key in draft if key.endswith("Probe")]
    assert "lifecycle" not in draft


def test_ports_in_one_pod_differ() -> None:
    target, draft = settings_in(spec(draft=SAME_POD))
    listen = [target.listen, target.http_listen, draft.listen, draft.http_listen]
    assert len({address.rpartition(":")[2] for address in listen}) == 4
    found = containers(spec(draft=SAME_POD))
    ports = [port for name in ("main", "draft") for port in found[name]["ports"]]
    for key in ("name", "containerPort"):
        assert len({port[key] for port in ports}) == len(ports)
    assert draft.http_listen.endswith(f":{found['draft']['ports'][0]['containerPort']}")


def test_only_its_target_can_reach_a_draft_s_link() -> None:
    _, draft = settings_in(spec(draft=SAME_POD))
    assert draft.listen.startswith("127.0.0.1:")
    assert draft.control_listen == "", "the target's Control is the pod's"
    policy = made(spec(draft=SAME_POD))["NetworkPolicy", "chat-target"]["spec"]
    ports = [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]]
    assert ports == [[50051, 8000, 8001], [50054]]


def test_the_link_s_folder_is_memory_that_both_see() -> None:
    text = spec(draft=SAME_POD)
    target, draft = settings_in(text)
    assert target.link_dir == draft.link_dir is not None
    (volume,) = (v for v in pod(made(text))["volumes"] if v["name"] == "link")
    assert volume["emptyDir"]["medium"] == "Memory"
    assert volume["emptyDir"]["sizeLimit"]
    for name in ("main", "draft"):
        paths = {m["mountPath"]: m["name"] for m in containers(text)[name]["volumeMounts"]}
        assert paths[target.link_dir] == "link"


def test_each_container_has_resources_image_and_shared_memory_of_its_own() -> None:
    found = containers(spec(", resources: {limits: {nvidia.com/gpu: 6}}", SAME_POD + OWN))
    assert found["main"]["resources"] == {"limits": {"nvidia.com/gpu": 6}}
    assert found["draft"]["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert found["draft-prepare"]["resources"] == found["draft"]["resources"]
    assert found["draft"]["image"] == found["draft-prepare"]["image"] == "small:1"
    assert found["main"]["image"] != "small:1"
    shared = {m["mountPath"]: m["name"] for m in found["draft"]["volumeMounts"]}
    assert shared["/dev/shm"] == "draft-shared-memory"
    assert "/dev/shm" not in {m["mountPath"] for m in found["main"]["volumeMounts"]}


def test_containers_of_one_role_share_its_settings_and_all_share_cache_and_policy() -> None:
    mounts = {
        name: {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        for name, container in containers(spec(draft=SAME_POD)).items()
    }
    own = {"prepare": "", "main": "", "draft-prepare": "draft-", "draft": "draft-"}
    for name, prefix in own.items():
        assert mounts[name]["/etc/outrider/settings"] == f"{prefix}settings"
        assert mounts[name]["/tmp"] == f"{prefix}temporary"
        assert mounts[name]["/var/cache/outrider"] == "cache"
    assert mounts["main"]["/etc/outrider/policy"] == mounts["draft"]["/etc/outrider/policy"]


@pytest.mark.parametrize("more", ["", OWN])
def test_every_mount_has_a_volume(more: str) -> None:
    text = spec(", parallelism: {tensor: 2}", SAME_POD + more)
    names = [volume["name"] for volume in pod(made(text))["volumes"]]
    assert len({*names}) == len(names)
    for container in containers(text).values():
        assert {mount["name"] for mount in container["volumeMounts"]} <= {*names}


def test_containers_are_restricted_and_only_the_one_that_fetches_has_a_token() -> None:
    text = spec(draft=SAME_POD).replace("hf://o/small'", "hf://o/small', tokenSecretRef: {name: s}")
    found = containers(text)
    with_token = [name for name, one in found.items()
                  if "HF_TOKEN" in {variable["name"] for variable in one["env"]}]  # fmt: skip
    assert with_token == ["draft-prepare"]
    for container in found.values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def template_of(text: str) -> Any:
    return made(text)["Deployment", "chat-target"]["spec"]["template"]["metadata"]


def test_a_change_of_the_draft_replaces_the_pods() -> None:
    before, after = spec(draft=SAME_POD), spec(draft=SAME_POD + ", engine: {threads: 2}")
    revisions = {template_of(text)["labels"][REVISION_LABEL] for text in (before, after)}
    assert len(revisions) == 2


def test_pods_name_both_settings_that_they_start_from() -> None:
    text = spec(draft=SAME_POD)
    target, draft = template_of(text)["annotations"][SETTINGS_ANNOTATION].split(",")
    assert target.startswith("chat-target-")
    assert draft.startswith("chat-draft-")
    for name in (target, draft):  # what waits for settings that were refused goes by this label
        assert made(text)["ConfigMap", name]["metadata"]["labels"][ROLE_LABEL] == "target"


def test_a_target_s_template_reaches_the_draft_s_container() -> None:
    over = [{"name": "draft", "env": [{"name": "A", "value": "b"}]}]
    text = spec(f", podTemplate: {{spec: {{containers: {json.dumps(over)}}}}}", SAME_POD)
    assert {"name": "A", "value": "b"} in containers(text)["draft"]["env"]


def test_the_metrics_of_both_are_read() -> None:
    monitor = made(spec(draft=SAME_POD))["PodMonitor", "chat"]["spec"]
    assert [end["port"] for end in monitor["podMetricsEndpoints"]] == ["http", "draft-http"]
