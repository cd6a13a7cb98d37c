"""What the chart gives the operator's own pods, as rendered and as a real API server takes it."""

import json

import pytest

from tests.kube import chart_golden
from tests.kube.chart import Object, Release, only
from tests.kube.chart_golden import FILE, NOTE, VALUES
from tests.kube.control_plane import ControlPlane, KubectlError

ELSEWHERE = ("cert-manager.io/v1", "monitoring.coreos.com/v1")
"""API versions of kinds that other projects bring."""
DIGEST = f"sha256:{'0a' * 32}"


@pytest.fixture
def release(control_plane: ControlPlane, namespace: str) -> Release:
    """Not installed."""
    return Release(control_plane, "outrider", namespace)


def pod(objects: list[Object]) -> Object:
    found: Object = only(objects, "Deployment")["spec"]["template"]["spec"]
    return found


def test_the_chart_renders_as_it_is_written_down() -> None:
    assert FILE.read_text() == chart_golden.rendered(), NOTE


def test_the_api_server_takes_all_that_the_chart_can_make(release: Release) -> None:
    here = f"namespaces={{{release.namespace}}},dashboards.namespace={release.namespace}"
    given = ("--values", str(VALUES), "--set", f"{here},crds.install=false")
    objects = release.rendered(*given)
    own = [one for one in objects if one["apiVersion"] not in ELSEWHERE]
    assert {"NetworkPolicy", "PodDisruptionBudget", "ConfigMap", "Pod"} <= {o["kind"] for o in own}
    accounts = [one for one in own if one["kind"] == "ServiceAccount"]
    release.control_plane.apply(*accounts)  # a pod is refused until its account is there
    strict = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    for one in (one for one in own if one not in accounts):
        release.control_plane.kubectl(*strict, stdin=json.dumps(one))


@pytest.mark.parametrize(("replicas", "expected"), [(1, False), (2, True)])
def test_a_budget_comes_where_a_pod_may_go(release: Release, replicas: int, expected: bool) -> None:
    objects = release.rendered("--set", f"replicas={replicas}")
    assert ("PodDisruptionBudget" in {one["kind"] for one in objects}) is expected
    without = release.rendered("--set", f"replicas={replicas},podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {one["kind"] for one in without}


def test_images_are_picked_by_digest_where_there_is_one(release: Release) -> None:
    values = f"image.digest={DIGEST},image.tag=x,worker.image.digest={DIGEST}"
    objects = release.rendered("--set", values)
    (container,) = pod(objects)["containers"]
    assert container["image"] == f"outrider-operator@{DIGEST}"
    assert f"--worker-image=outrider-worker@{DIGEST}" in container["args"]
    assert only(objects, "Pod")["spec"]["containers"][0]["image"] == container["image"]


def test_security_is_laid_over_what_is_strict_already(release: Release) -> None:
    objects = release.rendered(
        "--set", "podSecurityContext.runAsUser=7,securityContext.readOnlyRootFilesystem=false"
    )
    for one in (pod(objects), only(objects, "Pod")["spec"]):
        assert one["securityContext"]["runAsUser"] == 7
        assert one["securityContext"]["runAsNonRoot"] is True
        context = one["containers"][0]["securityContext"]
        assert context["readOnlyRootFilesystem"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_labels_for_all_objects_change_no_selector(release: Release) -> None:
    options = ("--values", str(VALUES), "--set", "crds.install=false")
    objects = release.rendered(*options)
    made = [one for one in objects if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    assert all(one["metadata"]["labels"]["cost-centre"] == "7" for one in made)
    deployment = only(objects, "Deployment")
    labels = deployment["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "outrider"
    assert "cost-centre" not in deployment["spec"]["selector"]["matchLabels"]


WRONG = {
    "image.digest=latest": "/image/digest",
    "logFormat=json": "/logFormat",
    "args[0]=": "/args/0",
    "networkPolicy.egressPorts={0}": "/networkPolicy/egressPorts/0",
    "podDisruptionBudget.maxUnavailable=half": "/podDisruptionBudget/maxUnavailable",
    "topologySpreadConstraints[0].maxSkew=1": "/topologySpreadConstraints/0",
    "metrics.rules=true": "/metrics/rules",
}
"""Values, and where they stand."""


def test_wrong_values_of_these_are_refused_by_name(release: Release) -> None:
    with pytest.raises(KubectlError) as refusal:
        release.rendered(*(word for value in WRONG for word in ("--set", value)))
    assert [path for path in WRONG.values() if f"at '{path}'" not in str(refusal.value)] == []
