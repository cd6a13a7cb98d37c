"""What a cluster wants of all pods lies over the operator's template, and under a role's own."""

from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.manifests.desired import Platform, desired
from outrider.operator.manifests.pods import PodRules
from outrider.operator.naming import ROLE_LABEL
from tests.unit.operator.golden import arguments
from tests.unit.operator.manifests.test_manifests import service_of, spec

CLUSTERS: Object = {
    "metadata": {"labels": {"team": "serving", ROLE_LABEL: "x"}},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
}
ONES_OWN = (
    ", podTemplate: {metadata: {labels: {team: chat}}, spec: {runtimeClassName: null,"
    " imagePullSecrets: [{name: mine}], tolerations: [{key: gpu, operator: Equal, value: a}]}}"
)


def templates(text: str, rules: PodRules) -> dict[Role, Object]:
    platform = Platform(image="w:1", pods=rules)
    objects = desired(*arguments(service_of(text), {}), platform).objects
    made = (one for one in objects if one["kind"] == "Deployment")
    return {Role(one["metadata"]["labels"][ROLE_LABEL]): one["spec"]["template"] for one in made}


@pytest.mark.parametrize("draft", ["", ", placement: SamePod"])
def test_every_pod_gets_what_the_cluster_wants(draft: str) -> None:
    found = templates(spec(draft=draft), PodRules(template=CLUSTERS))
    for role, template in found.items():
        assert CLUSTERS["spec"].items() <= template["spec"].items()
        assert template["metadata"]["labels"]["team"] == "serving"
        assert template["metadata"]["labels"][ROLE_LABEL] == role


def test_a_roles_template_has_the_last_word() -> None:
    template = templates(spec(ONES_OWN), PodRules(template=CLUSTERS))[Role.TARGET]
    assert template["metadata"]["labels"]["team"] == "chat"
    assert "runtimeClassName" not in template["spec"]
    assert [one["name"] for one in template["spec"]["imagePullSecrets"]] == ["registry", "mine"]
    assert template["spec"]["tolerations"] == [{"key": "gpu", "operator": "Equal", "value": "a"}]


def test_no_user_is_named_where_the_platform_gives_one() -> None:
    for template in templates(spec(), PodRules(fixed_user=False)).values():
        context = template["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
            assert "runAsUser" not in container["securityContext"]


@pytest.mark.parametrize(
    ("over", "roles_own", "found"),
    [
        ({"claims": [{"name": "gpus"}]}, "", None),
        ({"limits": {"nvidia.com/mig-1g.10gb": 1}}, "", None),
        ({"limits": {"memory": "1Gi"}}, "", {"nvidia.com/gpu": 1}),
        ({"claims": [{"name": "gpus"}]}, "{claims: null}", {"nvidia.com/gpu": 1}),
    ],
)
def test_gpus_that_the_cluster_brings_are_not_asked_for_once_more(
    over: Object, roles_own: str, found: Any
) -> None:
    clusters = {"spec": {"containers": [{"name": "main", "resources": over}]}}
    own = f"{{spec: {{containers: [{{name: main, resources: {roles_own}}}]}}}}" if roles_own else ""
    text = spec(f", engine: {{device: GPU}}{own and f', podTemplate: {own}'}")
    pod = templates(text, PodRules(template=clusters))[Role.TARGET]["spec"]
    (prepare,), (main,) = pod["initContainers"], pod["containers"]
    assert prepare.get("resources", {}).get("limits") == found
    merged = {**(found or {}), **over.get("limits", {})}
    assert main["resources"].get("limits", {}) == merged


def test_a_draft_in_its_targets_pod_has_gpus_of_its_own() -> None:
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}]
    gpu = ", engine: {device: GPU}"
    rules = PodRules(template={"spec": {"containers": containers}})
    pod = templates(spec(gpu, f", placement: SamePod{gpu}"), rules)[Role.TARGET]["spec"]
    main, draft = pod["containers"]
    assert "limits" not in main["resources"]
    assert draft["resources"]["limits"] == {"nvidia.com/gpu": 1}
