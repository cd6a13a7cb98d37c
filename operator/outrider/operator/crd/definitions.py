"""The two custom resource definitions: names, columns, subresources, and the schemas of `spec`.

Pure. `python -m tools.crds` writes them; the chart installs them.
"""

import copy
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from outrider.operator.crd.schema import Schema, structural
from outrider.operator.naming import (
    GROUP,
    KIND,
    PLURAL,
    SCALER_KIND,
    SCALER_PLURAL,
    SCALER_SHORT,
    SHORT,
    VERSION,
)
from outrider.operator.spec.conditions import ConditionType
from outrider.operator.spec.scaler import SpeculativeRoleScaler
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.spec.status import ScalerStatus, ServiceStatus


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False
    """Shown by `-o wide` only."""


def _condition(kind: ConditionType, key: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{key}'


_AGE = Column("Age", ".metadata.creationTimestamp", "Since when it exists.", "date")

SERVICE_COLUMNS = (
    Column("Ready", _condition(ConditionType.READY, "status"), "Whether requests are answered."),
    Column("Reason", _condition(ConditionType.READY, "reason"), "Why, in one word."),
    Column("Target", ".status.target.ready", "Targets, ready of wanted."),
    Column("Draft", ".status.draft.ready", "Drafts, ready of wanted now."),
    Column(
        "Rows",
        ".status.speculation.maxRows",
        "Ceiling of draft tokens of a request in one verify pass; 0: drafting is off.",
        "integer",
    ),
    Column(
        "Speculation",
        _condition(ConditionType.SPECULATION_ACTIVE, "reason"),
        "Whether drafting is on, or why not.",
    ),
    Column(
        "Gain%",
        ".status.speculation.gainPercent",
        "Speed against plain decoding; 100: the same.",
        "integer",
        wide=True,
    ),
    Column(
        "Hit%",
        ".status.speculation.hitPercent",
        "Share of first draft tokens that were accepted.",
        "integer",
        wide=True,
    ),
    Column("Placement", ".spec.draft.placement", "Where the draft is.", wide=True),
    Column(
        "Stages",
        ".spec.target.parallelism.pipeline",
        "Stages that each target's layers are cut over.",
        "integer",
        wide=True,
    ),
    Column(
        "Next",
        ".status.target.nextRevision",
        "Revision of the target that waits for the service's turn; empty: none.",
        wide=True,
    ),
    Column("URL", ".status.url", "Where the OpenAI-compatible API answers.", wide=True),
    _AGE,
)
"""Columns of `kubectl get specsvc`."""

SCALER_COLUMNS = (
    Column("Service", ".spec.service", "Whose replicas these are."),
    Column("Role", ".spec.role", "Of which role."),
    Column("Wanted", ".spec.replicas", "How many are wanted.", "integer"),
    Column("Replicas", ".status.replicas", "How many there are.", "integer"),
    _AGE,
)
"""Columns of `kubectl get specscaler`."""


@dataclass(frozen=True, slots=True)
class Definition:
    kind: str
    plural: str
    short: str
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[Column, ...]
    categories: tuple[str, ...] = ()
    scale: bool = False
    """True if it has the subresource `scale`."""

    @property
    def name(self) -> str:
        """Name of the definition's object."""
        return f"{self.plural}.{GROUP}"

    def manifest(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition, a fresh one."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": self._names(),
                "versions": [self._version()],
            },
        }

    def _names(self) -> dict[str, Any]:
        names = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
            "shortNames": [self.short],
        }
        return names | ({"categories": list(self.categories)} if self.categories else {})

    def _version(self) -> dict[str, Any]:
        return {
            "name": VERSION,
            "served": True,
            "storage": True,
            "additionalPrinterColumns": [_column(column) for column in self.columns],
            "subresources": {"status": {}} | (_scale() if self.scale else {}),
            "schema": {"openAPIV3Schema": self.schema()},
        }

    def schema(self) -> Schema:
        """Return the schema of the whole object; `metadata` is left to the API server."""
        schema = structural(self.spec)
        schema["properties"]["metadata"] = copy.deepcopy(_METADATA)
        schema["properties"]["status"] = structural(self.status, mode="serialization")
        schema["required"] = ["spec"]
        return schema


_METADATA = {"type": "object", "properties": {"name": {"type": "string"}}}
"""All that a definition may say of `metadata`; rules refer to the name."""


def _scale() -> dict[str, Any]:
    paths = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {"scale": paths}


def _column(column: Column) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return made | ({"priority": 1} if column.wide else {})


SERVICE_DEFINITION = Definition(
    kind=KIND,
    plural=PLURAL,
    short=SHORT,
    spec=SpeculativeService,
    status=ServiceStatus,
    columns=SERVICE_COLUMNS,
    categories=("all",),
)
SCALER_DEFINITION = Definition(
    kind=SCALER_KIND,
    plural=SCALER_PLURAL,
    short=SCALER_SHORT,
    spec=SpeculativeRoleScaler,
    status=ScalerStatus,
    columns=SCALER_COLUMNS,
    scale=True,
)
DEFINITIONS = (SERVICE_DEFINITION, SCALER_DEFINITION)
