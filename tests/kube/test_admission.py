"""Whoever applies a service is warned by the API server at once, and never held up."""

import base64
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube import pod_network
from tests.kube.chart import Release, only
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import Operators

VALUES = "admission.enabled=true,admission.timeoutSeconds=10,crds.install=false,namespaces={%s}"
LISTEN = "--admission-listen="
CERTIFICATES = "--admission-certificates="
MEMORY = "no memory is asked for; a node that runs short evicts such pods first"
Service = dict[str, Any]


@pytest.fixture
def release(control_plane: ControlPlane, definitions: None, namespace: str) -> Iterator[Release]:
    release = Release(control_plane, "outrider", namespace)
    release.helm("install", "--set", VALUES % namespace)
    yield release
    release.control_plane.helm("uninstall", release.name, "-n", namespace)


def service(**resources: Any) -> Service:
    """Another one each time: kubectl sends only what differs."""
    target = {"model": {"uri": "hf://org/large"}, "resources": resources}
    meta = {"name": "chat", "annotations": {"try": secrets.token_hex(4)}}
    kind = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
    return {**kind, "metadata": meta, "spec": {"target": target}}


def applied(release: Release, body: Service) -> "subprocess.CompletedProcess[str]":
    """As a user applies it, with all that kubectl says, an error too."""
    place = release.control_plane.place
    kubectl = (str(place.assets / "kubectl"), f"--kubeconfig={release.control_plane.kubeconfig}")
    return subprocess.run(
        (*kubectl, "apply", "-n", release.namespace, "-f", "-"),
        input=yaml.safe_dump(body),
        capture_output=True,
        text=True,
        timeout=60,
    )


def arguments(release: Release, folder: Path) -> list[str]:
    """The operator's as the chart gives them: a Service's address stands for its pods here, and a
    folder for the mounted Secret."""
    stored = release.stored()
    secret = only(stored, "Secret")
    for name, content in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    found = release.control_plane.kubectl(
        *("get", "service", only(stored, "Service")["metadata"]["name"], "-n", release.namespace),
        *("-o", "jsonpath={.spec.clusterIP}"),
    )
    pod_network.answer_for(found)
    given = (word for word in release.arguments if not word.startswith((LISTEN, CERTIFICATES)))
    own = ("--worker-image=",)
    kept = [word for word in given if not word.startswith(own)]
    return [*kept, f"{LISTEN}{found}:443", f"{CERTIFICATES}{folder}"]


def test_apply_says_what_is_probably_not_meant_and_a_dead_webhook_blocks_nothing(
    release: Release, operators: Operators, tmp_path: Path
) -> None:
    operator = operators.start(arguments(release, tmp_path), release.kubeconfig())
    operator.wait_until_leading()
    warned = f"Warning: spec.target.resources: {MEMORY}\n"
    release.control_plane.wait_until(
        lambda: applied(release, service()).stderr == warned, f"it says {warned!r} alone"
    )
    assert applied(release, service(requests={"memory": "1Gi"})).stderr == ""
    operator.end()
    said = applied(release, service())
    assert "configured" in said.stdout
    assert said.stderr == ""


def test_an_upgrade_keeps_the_certificate(release: Release) -> None:
    before = only(release.stored(), "Secret")["data"]
    release.helm("upgrade", "--set", f"{VALUES % release.namespace},replicas=2")
    stored = release.stored()
    assert only(stored, "Secret")["data"] == before
    (webhook,) = only(stored, "ValidatingWebhookConfiguration")["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == before["tls.crt"]
