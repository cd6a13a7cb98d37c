"""The keys by which pod templates are joined are those of the API server's own documents."""

import json
from collections.abc import Iterator
from typing import Any

from outrider.operator.manifests.overlay import KUBERNETES_KEYS
from tests.kube.control_plane import ControlPlane

TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
KEY = "x-kubernetes-patch-merge-key"


def merge_keys(schemas: dict[str, Any], name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Name and merge key of each list below a type."""
    if name in seen:
        return
    seen.add(name)
    for field, schema in schemas[name].get("properties", {}).items():
        if KEY in schema:
            yield field, schema[KEY]
        for below in references(schema):
            yield from merge_keys(schemas, below, seen)


def references(schema: Any) -> Iterator[str]:
    """Names of the types that a schema refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_pod_templates_are_joined_by_the_api_servers_own_keys(control_plane: ControlPlane) -> None:
    document = json.loads(control_plane.kubectl("get", "--raw", "/openapi/v3/api/v1"))
    found = set(merge_keys(document["components"]["schemas"], TEMPLATE, set()))
    assert len(found) == len(dict(found)), "a field's name has one key wherever it is"
    assert dict(found) == dict(KUBERNETES_KEYS)
