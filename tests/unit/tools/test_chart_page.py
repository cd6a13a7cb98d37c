"""Every value of the chart is in its schema."""

import json
from collections.abc import Iterator
from typing import Any

import yaml
from tools.chart_page import CHART

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def unknown(values: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Paths of values that the schema does not name."""
    for key, value in values.items():
        part = schema.get("properties", {}).get(key)
        if part is None:
            yield f"{path}{key}"
        elif isinstance(value, dict) and "properties" in part:
            yield from unknown(value, part, f"{path}{key}.")


def unset(schema: Any, values: Any, path: str = "") -> Iterator[str]:
    """Paths of the schema that have no default."""
    for key, part in schema.get("properties", {}).items():
        if key not in values:
            yield f"{path}{key}"
        elif isinstance(values[key], dict) and values[key]:
            yield from unset(part, values[key], f"{path}{key}.")


def test_the_schema_names_the_values_and_no_others() -> None:
    assert list(unknown(VALUES, SCHEMA)) == []
    assert set(unset(SCHEMA, VALUES)) == {"global"}
