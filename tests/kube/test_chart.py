"""The chart as Helm renders it, without installing: values, rules, definitions, labels."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.crds import FOLDER

from outrider.operator.__main__ import parse
from outrider.operator.manifests.network import OPERATOR
from outrider.operator.naming import OPERATOR_IDENTITY
from tests.kube.chart import CHART, PRIVILEGES, Release, is_aggregated, only, permissions, rules
from tests.kube.control_plane import ControlPlane, KubectlError

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
PERMISSION = re.compile(r"^\| (core|`[^|]+`) \| (`[^|]+`) \| ([a-z, ]+) \| [^|]+ \|$", re.MULTILINE)
SCOPES = ((), ("--set", "namespaces={a,b}"))
KEEP = {"annotations": {"helm.sh/resource-policy": "keep"}}
FREE = ("serviceAccount.annotations", "resources.requests", "resources.limits", "podAnnotations")
FREE += ("podLabels", "nodeSelector", "metrics.labels", "gpuPrices")
FREE += ("dashboards.labels", "dashboards.annotations", "commonLabels")
FREE += ("tests.token.spec",)
"""Values that hold whatever keys a user likes."""


@pytest.fixture
def release(control_plane: ControlPlane) -> Release:
    """Not installed."""
    return Release(control_plane, "outrider", "outrider-system")


@pytest.mark.parametrize("scope", SCOPES)
def test_helm_lint_finds_nothing(control_plane: ControlPlane, scope: tuple[str, ...]) -> None:
    said = control_plane.helm("lint", "--strict", str(CHART), *scope)
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("scope", SCOPES)
def test_no_rule_holds_a_wildcard(release: Release, scope: tuple[str, ...]) -> None:
    found = rules(release.rendered(*scope))
    assert found
    assert "*" not in yaml.safe_dump(found)


def test_the_operators_page_lists_the_permissions(release: Release) -> None:
    page = (ROOT / "docs" / "operator.md").read_text(encoding="utf-8")
    listed = {
        ("" if group == "core" else group.strip("`"), resource.strip("`"), verb)
        for group, resources, verbs in PERMISSION.findall(page.partition("## Permissions")[2])
        for resource in resources.split(", ")
        for verb in verbs.split(", ")
    }
    issued = release.rendered("--set", "certificates.issuerRef.name=mine")
    assert listed == permissions(release.rendered()) | permissions(issued)


def test_in_namespaced_mode_nothing_is_allowed_in_all_namespaces(release: Release) -> None:
    objects = release.rendered("--set", "namespaces={a,b}")
    wide = [one for one in objects if one["kind"].startswith("ClusterRole")]
    assert all(one["kind"] == "ClusterRole" and is_aggregated(one) for one in wide)
    allowed = {one["metadata"]["namespace"] for one in objects if one["kind"] == "RoleBinding"}
    assert allowed == {"a", "b"}


WRONG = {
    "replicas=0": ("/replicas", "got 0, want 1"),
    "image.pullPolicy=Sometimes": ("/image/pullPolicy", "IfNotPresent"),
    "image.repository=registry.example/a:1": ("/image/repository", "pattern"),
    "worker.image.tag=a b": ("/worker/image/tag", "does not match pattern"),
    "worker.podTemplate.spec=5": ("/worker/podTemplate/spec", "got number, want object"),
    "podUser=root": ("/podUser", "'Auto', 'Fixed', 'Assigned'"),
    "namespaces={Team_A}": ("/namespaces/0", "does not match pattern"),
    "metrics.monitor=true": ("/metrics/monitor", "'Auto', 'Enabled', 'Disabled'"),
    "admission.warnings=true": ("/admission/warnings", "'Enabled', 'Disabled'"),
    "admission.privileges.action=Ask": ("/admission/privileges/action", "'Deny', 'Warn'"),
    "admission.privileges.allowed={All}": ("/admission/privileges/allowed/0", "'Volumes'"),
    "imagePullSecrets={a}": ("/imagePullSecrets/0", "want object"),
}
"""Values, where they stand, and what helm says of each."""


def test_wrong_values_are_refused_by_name(release: Release) -> None:
    with pytest.raises(KubectlError) as refusal:
        release.rendered(*(word for value in WRONG for word in ("--set", value)))
    said = str(refusal.value)
    for path, problem in WRONG.values():
        assert re.search(f"at '{path}'.*{re.escape(problem)}", said), path


def objects_of(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of all objects among the values, each with a dot at its end."""
    yield path
    for key, value in values.items():
        if isinstance(value, dict) and f"{path}{key}" not in FREE:
            yield from objects_of(value, f"{path}{key}.")


def test_unknown_values_are_refused_by_name(release: Release) -> None:
    places = list(objects_of(yaml.safe_load((CHART / "values.yaml").read_text())))
    with pytest.raises(KubectlError) as refusal:
        release.rendered(*(word for place in places for word in ("--set", f"{place}unknwon=1")))
    found = re.findall(r"at '(.*)': additional properties 'unknwon'", str(refusal.value))
    assert sorted(found) == sorted(f"/{one}".replace(".", "/").rstrip("/") for one in places)


def test_an_account_that_is_not_made_must_be_named(release: Release) -> None:
    with pytest.raises(KubectlError, match=r"serviceAccount\.name is needed"):
        release.rendered("--set", "serviceAccount.create=false")
    objects = release.rendered(
        "--set", "serviceAccount.create=false,serviceAccount.name=mine,rbac.create=false"
    )
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"
    assert not {"ServiceAccount", "Role", "ClusterRole"} & {one["kind"] for one in objects}


def test_definitions_are_those_of_the_folder_and_are_kept(release: Release) -> None:
    written = [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.iterdir())]
    for one in written:
        one["metadata"] |= KEEP
    definition = "CustomResourceDefinition"
    assert [one for one in release.rendered() if one["kind"] == definition] == written
    without = release.rendered("--set", "crds.install=false")
    assert definition not in {one["kind"] for one in without}


def test_several_pods_prefer_nodes_of_their_own(release: Release) -> None:
    def affinity(*values: str) -> Any:
        pod = only(release.rendered(*values), "Deployment")["spec"]["template"]["spec"]
        return pod.get("affinity")

    two = ("--set", "replicas=2")
    assert affinity() is None
    assert list(affinity(*two)) == ["podAntiAffinity"]
    assert affinity(*two, "--set-json", 'affinity={"podAntiAffinity":{}}') == {
        "podAntiAffinity": {}
    }


def test_alerts_name_the_page_that_the_values_name(release: Release) -> None:
    base = "https://docs.example/alerts"
    objects = release.rendered("--set", f"metrics.rules=Enabled,metrics.runbookUrl={base}")
    (*_, group) = only(objects, "PrometheusRule")["spec"]["groups"]
    for rule in group["rules"]:
        assert rule["annotations"]["runbook_url"] == f"{base}#{rule['alert'].lower()}"


def test_drafts_let_the_operators_pods_in(release: Release) -> None:
    template = only(release.rendered("--set", "podLabels.team=a"), "Deployment")["spec"]["template"]
    assert OPERATOR.items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["labels"]["team"] == "a"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("outrider", "outrider-operator"),
        ("outrider-operator", "outrider-operator"),
        ("team", "team-outrider-operator"),
        ("a" * 53, f"{'a' * 50}-operator"),
    ],
)
def test_names_follow_the_release_and_fit(
    control_plane: ControlPlane, name: str, expected: str
) -> None:
    objects = Release(control_plane, name, "outrider-system").rendered()
    assert only(objects, "Deployment")["metadata"]["name"] == expected


def test_the_chart_installs_images_of_the_projects_version() -> None:
    version = tomllib.loads(PROJECT.read_text())["project"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), False),
        (("--api-versions", "monitoring.coreos.com/v1/PodMonitor"), True),
        (("--set", "metrics.monitor=Enabled"), True),
        (
            (
                "--api-versions",
                "monitoring.coreos.com/v1/PodMonitor",
                "--set",
                "metrics.monitor=Disabled",
            ),
            False,
        ),
    ],
)
def test_a_pod_monitor_comes_where_prometheus_operator_is(
    release: Release, options: tuple[str, ...], expected: bool
) -> None:
    kinds = [one["kind"] for one in release.rendered(*options)]
    assert ("PodMonitor" in kinds) is expected


def test_pod_monitors_have_the_labels_by_which_a_prometheus_picks_them(release: Release) -> None:
    objects = release.rendered("--set", "metrics.monitor=Enabled,metrics.labels.release=kube")
    monitor = only(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "kube"
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--pod-monitor-label=release=kube" in container["args"]


@pytest.mark.parametrize("scope", SCOPES)
def test_secrets_are_not_touched_where_workers_have_no_certificates(
    release: Release, scope: tuple[str, ...]
) -> None:
    without = (*scope, "--set", "certificates.enabled=false")
    objects = release.rendered(*without)
    assert "secrets" not in yaml.safe_dump(rules(objects))
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--peer-certificates=off" in container["args"]


@pytest.mark.parametrize("scope", SCOPES)
def test_an_issuer_signs_for_the_operator_too_and_secrets_are_not_touched(
    release: Release, scope: tuple[str, ...]
) -> None:
    objects = release.rendered(*scope, "--set", "certificates.issuerRef.name=mine")
    wish = only(objects, "Certificate")["spec"]
    assert wish["dnsNames"] == [OPERATOR_IDENTITY]
    reference = {"name": "mine", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert wish["issuerRef"] == reference
    found = rules(objects)
    assert "secrets" not in yaml.safe_dump(found)
    of_certificates = [one for one in found if "certificates" in one["resources"]]
    assert {tuple(one["apiGroups"]) for one in of_certificates} == {("cert-manager.io",)}
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,), (container,) = pod["volumes"], pod["containers"]
    assert volume["secret"]["secretName"] == wish["secretName"]
    (mount,) = container["volumeMounts"]
    options = parse(container["args"])
    assert options.issuer is not None
    assert options.issuer.reference == reference
    assert options.peer_folder == Path(mount["mountPath"])
    assert "Certificate" not in {one["kind"] for one in release.rendered(*scope)}


def policies(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Admission policies by the first word of their names, each with its binding."""
    kind = "ValidatingAdmissionPolicy"
    bound = {one["spec"]["policyName"]: one for one in objects if one["kind"] == f"{kind}Binding"}
    found = {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}
    return {name.partition(".")[0]: {**one, "binding": bound[name]} for name, one in found.items()}


def test_policies_warn_and_deny_where_the_operator_looks_after_services(release: Release) -> None:
    found = policies(release.rendered("--set", "namespaces={a}"))
    assert {name: one["binding"]["spec"]["validationActions"] for name, one in found.items()} == {
        "advice": ["Warn"],
        "privileges": ["Deny"],
        "stored": ["Warn"],
    }
    for one in found.values():
        selector = one["binding"]["spec"]["matchResources"]["namespaceSelector"]
        assert [e["values"] for e in selector["matchExpressions"]] == [["a"]]
    fails = {name: one["spec"]["failurePolicy"] for name, one in found.items()}
    assert fails == {"advice": "Ignore", "privileges": "Fail", "stored": "Ignore"}
    everywhere = policies(release.rendered())
    assert all("matchResources" not in one["binding"]["spec"] for one in everywhere.values())


def test_stored_services_are_judged_by_the_same_rules(release: Release) -> None:
    allowed = "admission.privileges.allowed={Volumes}"
    found = policies(release.rendered("--set", allowed))
    judged, stored = (found[name]["spec"] for name in ("privileges", "stored"))
    assert stored["validations"] == judged["validations"]
    (rule,) = stored["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["speculativeservices/status"]
    for action in ("Warn", "Audit"):
        made = policies(release.rendered("--set", f"admission.privileges.action={action}"))
        assert "stored" not in made, "nobody is refused what a stored service has"


def test_policies_are_left_out_by_wish(release: Release) -> None:
    values = "admission.warnings=Disabled,admission.privileges.action=Allow"
    assert policies(release.rendered("--set", values)) == {}


def test_the_chart_has_all_privileges_and_allows_those_that_are_named(release: Release) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    names = schema["properties"]["admission"]["properties"]["privileges"]["properties"]["allowed"]
    assert names["items"]["enum"] == list(PRIVILEGES)
    allowed = release.rendered("--set", "admission.privileges.allowed={Volumes}")
    (every, some) = (
        [one["message"] for one in policies(objects)["privileges"]["spec"]["validations"]]
        for objects in (release.rendered(), allowed)
    )
    assert len(every) == len(PRIVILEGES)
    assert [one for one in every if one not in some] == [one for one in every if "hostPath" in one]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("replicas=1", {"outrider-view", "outrider-edit"}),
        ("rbac.aggregate=false", set()),
        ("rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine", set()),
        ("crds.install=false", set()),
    ],
)
def test_roles_for_people_go_with_the_definitions(
    release: Release, values: str, expected: set[str]
) -> None:
    objects = release.rendered("--set", values)
    roles = (one for one in objects if one["kind"] == "ClusterRole")
    assert {one["metadata"]["name"] for one in roles if is_aggregated(one)} == expected


OPENSHIFT = ("--api-versions", "security.openshift.io/v1")


@pytest.mark.parametrize(
    ("options", "user"),
    [
        ((), "fixed"),
        (OPENSHIFT, "assigned"),
        ((*OPENSHIFT, "--set", "podUser=Fixed"), "fixed"),
        (("--set", "podUser=Assigned"), "assigned"),
    ],
)
def test_pods_name_no_user_where_the_platform_gives_one(
    release: Release, options: tuple[str, ...], user: str
) -> None:
    objects = release.rendered(*options)
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert f"--worker-user={user}" in pod["containers"][0]["args"]
    named = {"runAsUser": 65532, "runAsGroup": 65532} if user == "fixed" else {}
    for context in (pod["securityContext"], only(objects, "Pod")["spec"]["securityContext"]):
        found = {key: context[key] for key in ("runAsUser", "runAsGroup") if key in context}
        assert found == named
        assert context["runAsNonRoot"] is True


def test_what_the_cluster_wants_of_all_workers_is_told_to_the_operator(release: Release) -> None:
    template = '{"spec":{"runtimeClassName":"nvidia","imagePullSecrets":[{"name":"a b"}]}}'
    objects = release.rendered("--set-json", f"worker.podTemplate={template}")
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    told = [word for word in container["args"] if word.startswith("--worker-template=")]
    given = parse([*told, "--worker-image=w:1"]).pods.template
    assert given == json.loads(template)
    (plain,) = only(release.rendered(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert not [word for word in plain["args"] if word.startswith("--worker-template")]
