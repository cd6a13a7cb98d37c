"""What the schema of the chart's values takes, an API server takes: odd values one by one, and
usual ones in pairs."""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from outrider.operator.cluster.kinds import CERTIFICATE, POD_MONITOR, ObjectKind
from tests.kube.chart import CHART, PRIVILEGES, Release, only
from tests.kube.chart_golden import VALUES
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.odd_values import odd_values
from tests.kube.other_kinds import installed
from tests.pairwise import pairwise

RULES = ObjectKind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules")
SYSTEM = "outrider-system"
NAMESPACES = (SYSTEM, "team-a", "team-b", "grafana", "1")
TRIAL = "outrider-operator-trial-pod"
"""Account of the pod of `helm test`, which has to be there before its pod."""
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ODD = {
    path: [value for _, value in cases]
    for path, cases in groupby(odd_values(SCHEMA), key=lambda case: case[0])
}
REFUSED = re.compile(
    r"at '/|invalid propertyName|is there twice|is not allowed; allowed|name is needed"
)
"""How Helm says which value is wrong."""
ALL = ",".join(PRIVILEGES)


@pytest.fixture(scope="module")
def release(control_plane: ControlPlane, definitions: None) -> Iterator[Release]:
    """Not installed; all that its objects need is there."""
    known = control_plane.kubectl("get", "namespaces", "-o", "name")
    for name in NAMESPACES:
        if f"namespace/{name}\n" not in known:
            control_plane.kubectl("create", "namespace", name)
        control_plane.kubectl("create", "serviceaccount", TRIAL, "-n", name)
    with installed(control_plane, POD_MONITOR, CERTIFICATE, RULES):
        yield Release(control_plane, "outrider", SYSTEM)
    for name in NAMESPACES:
        control_plane.kubectl("delete", "serviceaccount", TRIAL, "-n", name)


def refusal(release: Release, *options: str, known: list[Any]) -> str | None:
    """What the API server says of a rendering; None: it takes all, or Helm refuses a value by
    name. Objects that are `known` are not asked about again."""
    try:
        made = release.rendered(*options)
    except KubectlError as error:
        return None if REFUSED.search(str(error)) else str(error)
    new = [one for one in made if one not in known]
    if not new:
        return None
    tried = json.dumps({"apiVersion": "v1", "kind": "List", "items": new})
    how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    try:
        release.control_plane.kubectl("apply", *how, "-f", "-", stdin=tried)
    except KubectlError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def everything(release: Release) -> list[Any]:
    """The objects of the chart with all that can be wished for, which the server takes."""
    options = ("--values", str(VALUES))
    assert refusal(release, *options, known=[]) is None
    return release.rendered(*options)


@pytest.mark.parametrize("path", ODD)
def test_an_odd_value_is_refused_by_name_or_taken_by_the_server(
    release: Release, everything: list[Any], path: str
) -> None:
    for value in ODD[path]:
        options = ("--values", str(VALUES), "--set-json", f"{path}={json.dumps(value)}")
        assert refusal(release, *options, known=everything) is None, value


@pytest.mark.parametrize(
    "key",
    ["affinity", "podLabels", "podAnnotations", "namespaces", "podSecurityContext", "volumes"],
)
def test_a_default_that_is_dropped_is_none(release: Release, key: str) -> None:
    assert refusal(release, "--set", f"{key}=null", known=[]) is None


def test_prices_are_taken_from_the_command_line(release: Release) -> None:
    made = release.rendered("--set", r"gpuPrices.nvidia\.com/gpu=3.2,gpuPrices.NVIDIA-L4=1")
    arguments = only(made, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {"--gpu-price=nvidia.com/gpu=3.2", "--gpu-price=NVIDIA-L4=1"} <= set(arguments)
    for wrong in ("0", "0.0", "free", "-1"):
        with pytest.raises(KubectlError, match="gpuPrices"):
            release.rendered("--set", f"gpuPrices.a={wrong}")


COLLIDING = (
    'volumes=[{"name":"a","emptyDir":{}},{"name":"a","configMap":{"name":"b"}}]',
    'volumes=[{"name":"certificates","emptyDir":{}}]',  # the chart's own, for it has an issuer
    'volumeMounts=[{"name":"b","mountPath":"/b"}]',
    'volumeMounts=[{"name":"extra","mountPath":"/b"},{"name":"extra","mountPath":"/b"}]',
    'volumeMounts=[{"name":"extra","mountPath":"/etc/outrider/certificates"}]',
)


@pytest.mark.parametrize("value", COLLIDING)
def test_volumes_that_collide_are_refused_by_name(release: Release, value: str) -> None:
    with pytest.raises(KubectlError, match="volume") as refused:
        release.rendered("--values", str(VALUES), "--set-json", value)
    assert REFUSED.search(str(refused.value))


TOGETHER = (
    'podDisruptionBudget.maxUnavailable="101%"',
    'podAnnotations={"a..b/x":"c"}',
    'args=["--lease-seconds","30"]',
    'args=["lease-seconds=30"]',
    'env=[{"name":"a","value":"b","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]',
    'env=[{"name":"a","value":"","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]',
    'env=[{"name":"a","valueFrom":{"secretKeyRef":{"name":"b"}}}]',
    'tolerations=[{"key":"a","operator":"Exists","value":"b"}]',
    'tolerations=[{"key":"a","effect":"NoSchedule","tolerationSeconds":3}]',
    'tolerations=[{"key":"a","tolerationSeconds":3}]',
    'tolerations=[{"key":"a","effect":"NoExecute","tolerationSeconds":3}]',
    'topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a",'
    '"whenUnsatisfiable":"ScheduleAnyway","minDomains":2}]',
    'topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"'
    '},{"maxSkew":2,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"}]',
    'topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"'
    '},{"maxSkew":2,"topologyKey":"a","whenUnsatisfiable":"ScheduleAnyway"}]',
    'networkPolicy.metricsFrom=[{"ipBlock":{}}]',
    'networkPolicy.metricsFrom=[{"ipBlock":{"cidr":"10.0.0.0/8"},"podSelector":{}}]',
    'networkPolicy.metricsFrom=[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]',
    'affinity.nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution":{}}',
    'affinity.nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution":'
    '{"nodeSelectorTerms":[]}}',
    'affinity.nodeAffinity={"preferredDuringSchedulingIgnoredDuringExecution":'
    '[{"weight":101,"preference":{}}]}',
    'affinity.podAffinity={"requiredDuringSchedulingIgnoredDuringExecution":[{}]}',
    'affinity.podAntiAffinity={"preferredDuringSchedulingIgnoredDuringExecution":'
    '[{"weight":1,"podAffinityTerm":{"topologyKey":"zone"}}]}',
    'podSecurityContext={"seccompProfile":{"type":"Localhost"}}',
    'podSecurityContext={"seccompProfile":{"type":"RuntimeDefault","localhostProfile":"a"}}',
    'podSecurityContext={"sysctls":[{"name":"a b","value":"1"}]}',
    'securityContext={"privileged":true}',
    'securityContext={"privileged":true,"allowPrivilegeEscalation":true}',
    'securityContext={"capabilities":{"add":["CAP_SYS_ADMIN"]}}',
)
"""Values that are right or wrong only beside each other, and some of either kind."""


@pytest.mark.parametrize("value", TOGETHER)
def test_values_beside_each_other_are_refused_by_name_or_taken(
    release: Release, everything: list[Any], value: str
) -> None:
    options = ("--values", str(VALUES), "--set-json", value)
    assert refusal(release, *options, known=everything) is None


def test_a_volume_may_be_called_certificates_where_the_chart_has_none(release: Release) -> None:
    volume = 'volumes=[{"name":"certificates","emptyDir":{}}]'
    assert refusal(release, "--set-json", volume, known=[]) is None
    assert release.rendered("--set-json", volume)


@pytest.mark.parametrize(
    ("namespaces", "certificates", "kinds", "action", "allowed", "account", "policy", "tests"),
    pairwise(
        namespaces=("{}", "{1,team-a}"),
        certificates=("enabled=false", "issuerRef.name=", "issuerRef.name=ca"),
        kinds=("Disabled", "Enabled"),
        action=("Deny", "Warn", "Audit", "Allow"),
        allowed=("", ALL),
        account=("create=true", "create=false,serviceAccount.name=mine"),
        policy=("false", "true"),
        tests=("false", "true"),
    ),
)
def test_a_server_takes_what_is_made_of_usual_values(
    release: Release,
    namespaces: str,
    certificates: str,
    kinds: str,
    action: str,
    allowed: str,
    account: str,
    policy: str,
    tests: str,
) -> None:
    values = {
        "namespaces": namespaces,
        "metrics.monitor": kinds,
        "metrics.rules": kinds,
        "dashboards.enabled": policy,
        "networkPolicy.enabled": policy,
        "admission.privileges.action": action,
        "admission.privileges.allowed": f"{{{allowed}}}",
        "tests.token.enabled": tests,
        "replicas": 1 + (tests == "true"),
    }
    pairs = [f"{key}={value}" for key, value in values.items()]
    pairs += [f"certificates.{certificates}", f"serviceAccount.{account}"]
    words = [word for pair in pairs for word in ("--set", pair)]
    assert refusal(release, *words, known=[]) is None
