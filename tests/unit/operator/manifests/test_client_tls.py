"""Targets that speak TLS with their clients: files, probes, Services, scrapes, and the address."""

import json
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.spec import load
from tests.unit.operator.golden import wanted

SPEC = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: chat}
spec:
  target: {model: {uri: "hf://o/large"}%s}
  %s
  access: {tlsSecretRef: {name: chat-tls}}
"""
DRAFT = 'draft: {model: {uri: "hf://o/small"}%s}'


def made(target: str = "", draft: str = DRAFT % "") -> dict[tuple[str, str], Object]:
    service = load(SPEC % (target, draft))
    objects = wanted(service, dict.fromkeys(Role, 1)).objects
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def template(objects: dict[tuple[str, str], Object], role: str) -> Any:
    return objects["Deployment", f"chat-{role}"]["spec"]["template"]


def test_a_target_mounts_what_its_settings_name() -> None:
    objects = made()
    of_pods = template(objects, "target")["spec"]
    (container,) = of_pods["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in of_pods["volumes"]}
    secret = volumes["tls"]["secret"]
    assert secret["secretName"] == "chat-tls"
    assert secret["optional"], "a pod that waits for a Secret does not say so"
    name = volumes["settings"]["configMap"]["name"]
    settings = json.loads(objects["ConfigMap", name]["data"]["settings.json"])
    files = {f"{mounts['tls']}/{item['path']}" for item in secret["items"]}
    assert {settings["tls_cert"], settings["tls_key"]} == files
    (preparing,) = of_pods["initContainers"]
    assert "tls" not in {one["name"] for one in preparing["volumeMounts"]}


def test_a_draft_knows_nothing_of_it() -> None:
    objects = made()
    of_pods = template(objects, "draft")
    assert "chat-tls" not in json.dumps(of_pods)
    (container,) = of_pods["spec"]["containers"]
    assert "scheme" not in container["livenessProbe"]["httpGet"]


def test_kubelets_probe_a_target_over_tls() -> None:
    (container,) = template(made(), "target")["spec"]["containers"]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[name]["httpGet"]["scheme"] == "HTTPS"


def test_services_say_what_targets_speak() -> None:
    objects = made()
    spoken = {
        name: {port["name"]: port["appProtocol"] for port in one["spec"]["ports"]}
        for (kind, name), one in objects.items()
        if kind == "Service"
    }
    assert spoken == {
        "chat": {"http": "https", "grpc": "https"},
        "chat-targets": {"grpc": "https"},
        "chat-drafts": {"grpc": "kubernetes.io/h2c"},
    }


def keeps(endpoint: Object) -> list[str]:
    """The roles whose pods are read there."""
    return [one["regex"] for one in endpoint["relabelings"] if one["action"] == "keep"]


def test_a_prometheus_reads_each_role_as_it_speaks() -> None:
    targets, drafts = made()["PodMonitor", "chat"]["spec"]["podMetricsEndpoints"]
    assert (keeps(targets), targets["scheme"]) == (["target"], "https")
    assert targets["tlsConfig"] == {"insecureSkipVerify": True}
    assert keeps(drafts) == ["draft"]
    assert "scheme" not in drafts


@pytest.mark.parametrize(
    ("target", "draft", "ports"),
    [
        ("", "", ["http"]),
        ("", DRAFT % ", placement: SamePod", ["http", "draft-http"]),
        (", parallelism: {tensor: 2, nodes: 2}", "", ["http"]),
    ],
)
def test_only_what_is_there_is_read(target: str, draft: str, ports: list[str]) -> None:
    endpoints = made(target, draft)["PodMonitor", "chat"]["spec"]["podMetricsEndpoints"]
    assert [one["port"] for one in endpoints] == ports
    assert [one.get("scheme") for one in endpoints] == ["https", None][: len(ports)]
    followers = [one for one in endpoints[0]["relabelings"] if one["action"] == "drop"]
    assert bool(followers) is bool(target), "followers of a group answer nobody"
