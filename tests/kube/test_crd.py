"""The custom resource definitions on a real API server: rules, defaults, columns, `scale`."""

import json
import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.crds import FOLDER

from outrider.operator.cluster.kinds import ROLE_SCALER, SERVICE
from outrider.operator.control.reasons import LoopReason
from outrider.operator.spec.conditions import ConditionType, ReadyReason
from outrider.operator.spec.part import SpecPart
from outrider.operator.spec.reading import validate, without_server_fields
from outrider.operator.spec.scaler import SpeculativeRoleScaler
from outrider.operator.spec.service import ServiceReader
from outrider.operator.spec.status import (
    Condition,
    ConditionStatus,
    RoleStatus,
    ScalerStatus,
    ServiceStatus,
    SpeculationStatus,
)
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.rules import ENTRIES, Entry, Object

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
SMALL = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: small}
spec: {target: {model: {uri: hf://org/large}}, draft: {model: {uri: hf://org/small}}%s}
"""
SCALER = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeRoleScaler
metadata: {name: small-draft}
spec: {service: small, role: Draft, replicas: 2}
"""
KINDS = {kind.name: kind for kind in (SERVICE, ROLE_SCALER)}
APPLY = "application/apply-patch+yaml"
SECONDS = 30.0
INVALID = re.compile(r'^Invalid value: (".*?": )?')
"""What the server says before a rule's message."""
NOW = "2026-01-02T03:04:05Z"


class Place:
    """A namespace of an API server that knows the definitions."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self._namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._control_plane.kubectl("-n", self._namespace, *arguments, stdin=stdin)

    def apply(self, document: Object, *options: str) -> Object:
        """The object as the server has it then; by a request, for kubectl costs more than that."""
        query = "&".join(("fieldManager=tests", "fieldValidation=Strict", *options))
        path = f"{self._path(document)}?{query}"
        with self._control_plane.open(path, SECONDS, "PATCH", document, APPLY) as answer:
            shown: Object = json.load(answer)
            return shown

    def try_on(self, document: Object) -> Object:
        """The object as the server would have it."""
        return self.apply(document, "dryRun=All")

    def errors(self, document: Object) -> list[str]:
        """What the server has against an object, as `path: message`."""
        try:
            self.try_on(document)
        except urllib.error.HTTPError as refusal:
            causes = json.load(refusal)["details"]["causes"]
            return [f"{c['field']}: {INVALID.sub('', c['message'])}" for c in causes]
        return []

    def delete(self, document: Object) -> None:
        self._control_plane.open(self._path(document), SECONDS, "DELETE").close()

    def _path(self, document: Object) -> str:
        kind = KINDS[document["kind"]]
        return kind.at(self._namespace, document["metadata"]["name"])

    def report(self, name: str, status: ServiceStatus | ScalerStatus) -> None:
        """Writes the status of an object (kind/name)."""
        plain = {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
        patch = ("patch", name, "--subresource=status", "--type=merge", "-p", json.dumps(plain))
        self.kubectl(*patch)

    def columns(self, *arguments: str) -> dict[str, str]:
        """The one row that `kubectl get` shows, by column."""
        head, row = self.kubectl("get", *arguments).splitlines()
        starts = [found.start() for found in re.finditer(r"\S+", head)]
        ends = [*starts[1:], None]
        cells = [(head[a:b].strip(), row[a:b].strip()) for a, b in zip(starts, ends, strict=True)]
        return dict(cells)


@pytest.fixture
def place(control_plane: ControlPlane, definitions: None, namespace: str) -> Place:
    """A new namespace."""
    return Place(control_plane, namespace)


@pytest.fixture(scope="module")
def shared(control_plane: ControlPlane, definitions: None) -> Iterator[Place]:
    """One namespace for tests that leave nothing in it."""
    control_plane.kubectl("create", "namespace", "rules")
    yield Place(control_plane, "rules")
    control_plane.kubectl("delete", "namespace", "rules", "--wait=false")


def stored(document: dict[str, Any]) -> Any:
    """The spec that a server should keep: as `outrider run` reads it, with defaults."""
    if document["kind"] == "SpeculativeService":
        found: SpecPart = ServiceReader().read(document)
    else:
        found = validate(SpeculativeRoleScaler, without_server_fields(document))
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)["spec"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_what_keeps_a_rule_is_taken_as_run_reads_it_and_what_breaks_it_is_refused_with_its_message(
    shared: Place, entry: Entry
) -> None:
    if entry.before is not None:
        shared.apply(entry.before)
    try:
        for good in entry.good:
            assert shared.try_on(good)["spec"] == stored(good)
        for bad in entry.bad:
            assert sorted(shared.errors(bad)) == sorted(entry.breaks)
    finally:
        if entry.before is not None:
            shared.delete(entry.before)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_taken_as_run_reads_it(shared: Place, example: Path) -> None:
    document = yaml.safe_load(example.read_text(encoding="utf-8"))
    assert shared.try_on(document)["spec"] == stored(document)


def test_replicas_that_are_left_out_stay_so(place: Place) -> None:
    spec = place.apply(yaml.safe_load(SMALL % ""))["spec"]
    assert "replicas" not in spec["target"]
    assert "replicas" not in spec["draft"]
    assert spec["speculation"]["draftShrink"] == {"afterSeconds": 120, "idleSeconds": 900}


@pytest.mark.parametrize(
    ("added", "path"),
    [
        (", drift: 1", "spec.drift"),
        (", speculation: {max_rows: 4}", "spec.speculation.max_rows"),
        (", monitoring: {enabled: true}", "spec.monitoring.enabled"),
    ],
)
def test_an_unknown_field_is_refused(shared: Place, added: str, path: str) -> None:
    with pytest.raises(KubectlError, match=re.escape(f'unknown field "{path}"')):
        shared.kubectl("create", "--dry-run=server", "-f", "-", stdin=SMALL % added)


def test_a_pod_template_may_hold_any_field_of_pods(shared: Place) -> None:
    document = yaml.safe_load(SMALL % "")
    template = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}}
    document["spec"]["target"]["podTemplate"] = template
    assert shared.try_on(document)["spec"]["target"]["podTemplate"] == template


@pytest.mark.parametrize(
    ("added", "path"),
    [
        (", speculation: {maxRows: 65}", "spec.speculation.maxRows"),
        (", topology: {key: ''}", "spec.topology.key"),
        (", podDisruptionBudget: {maxUnavailable: 101%}", "spec.podDisruptionBudget"),
        (", podDisruptionBudget: {maxUnavailable: -1}", "spec.podDisruptionBudget"),
        (", suspend: true", "spec.suspend"),
    ],
)
def test_a_value_out_of_its_range_is_refused(shared: Place, added: str, path: str) -> None:
    with pytest.raises(KubectlError, match=re.escape(f"{path}")):
        shared.kubectl("create", "--dry-run=server", "-f", "-", stdin=SMALL % added)


def condition(kind: ConditionType, reason: str) -> Condition:
    return Condition(type=kind, status=ConditionStatus.TRUE, lastTransitionTime=NOW, reason=reason)


def test_kubectl_get_shows_a_service_at_a_glance(place: Place) -> None:
    place.apply(yaml.safe_load(SMALL % ""))
    assert place.columns("specsvc")["READY"] == ""
    place.report(
        "specsvc/small",
        ServiceStatus(
            observedGeneration=1,
            conditions=(
                condition(ConditionType.READY, ReadyReason.SERVING),
                condition(ConditionType.SPECULATION_ACTIVE, LoopReason.PROBING),
            ),
            target=RoleStatus(replicas=2, readyReplicas=1, desiredReplicas=2),
            draft=RoleStatus(),
            speculation=SpeculationStatus(maxRows=16, gainPercent=115, hitPercent=60),
            url="http://small.default:8000/v1",
        ),
    )
    shown = place.columns("specsvc")
    assert list(shown) == [
        "NAME", "READY", "REASON", "TARGET", "DRAFT", "ROWS", "SPECULATION", "AGE",
    ]  # fmt: skip
    del shown["AGE"]
    assert list(shown.values()) == ["small", "True", "Serving", "1/2", "0/0", "16", "Probing"]
    wide = place.columns("specsvc", "-o", "wide")
    assert (wide["GAIN%"], wide["HIT%"]) == ("115", "60")
    assert wide["URL"] == "http://small.default:8000/v1"
    assert "speculativeservice.outrider.dev/small" in place.kubectl("get", "all", "-o", "name")


def test_a_status_does_not_change_what_is_wanted(place: Place) -> None:
    before = place.apply(yaml.safe_load(SMALL % ""))
    place.report("specsvc/small", ServiceStatus(observedGeneration=1))
    after = json.loads(place.kubectl("get", "specsvc/small", "-o", "json"))
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]


def test_a_second_condition_of_a_type_is_refused(place: Place) -> None:
    place.apply(yaml.safe_load(SMALL % ""))
    twice = (condition(ConditionType.READY, ReadyReason.SERVING),) * 2
    with pytest.raises(KubectlError, match="Duplicate value"):
        place.report("specsvc/small", ServiceStatus(conditions=twice))


def test_kubectl_scale_changes_a_scaler_and_shows_its_selector(place: Place) -> None:
    place.apply(yaml.safe_load(SCALER))
    selector = "outrider.dev/service=small,outrider.dev/role=draft"
    place.report("specscaler/small-draft", ScalerStatus(replicas=2, selector=selector))
    place.kubectl("scale", "specscaler/small-draft", "--replicas=5")
    scale = ("get", "specscaler/small-draft", "--subresource=scale", "-o", "json")
    shown = json.loads(place.kubectl(*scale))
    assert shown["spec"]["replicas"] == 5
    assert shown["status"] == {"replicas": 2, "selector": selector}
    row = place.columns("specscaler")
    assert (row["SERVICE"], row["ROLE"], row["WANTED"], row["REPLICAS"]) == (
        "small",
        "Draft",
        "5",
        "2",
    )


def test_the_definitions_may_be_applied_again(
    control_plane: ControlPlane, definitions: None
) -> None:
    done = control_plane.kubectl("apply", "--server-side", "-f", str(FOLDER), "-o", "name")
    assert len(done.splitlines()) == len(list(FOLDER.iterdir()))
