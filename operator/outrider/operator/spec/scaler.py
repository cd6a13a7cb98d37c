"""`SpeculativeRoleScaler`: the number of replicas of one role, for autoscalers to write.

The operator makes one for each role whose scaling is External; people rarely write it.
"""

import enum
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from outrider.operator.spec.part import Count, ObjectName, SpecPart
from outrider.operator.spec.reading import Metadata, described, validated
from outrider.operator.spec.roles import MAX_REPLICAS
from outrider.operator.spec.rules import SCALER, refuse_broken


class ScaledRole(enum.StrEnum):
    """Whose replicas these are."""

    TARGET = "Target"
    DRAFT = "Draft"


class ScalerSpec(SpecPart):
    """What is wanted."""

    service: ObjectName
    """Name of the SpeculativeService. Cannot change."""
    role: ScaledRole
    """Whose replicas these are. Cannot change."""
    replicas: Count = Field(ge=0, le=MAX_REPLICAS)
    """How many are wanted; the role's scaling.minReplicas and maxReplicas bound it."""


class SpeculativeRoleScaler(SpecPart):
    """The number of replicas of one role of a service, with the subresource `scale`."""

    api_version: Literal["outrider.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["SpeculativeRoleScaler"]
    """Always SpeculativeRoleScaler."""
    metadata: Metadata
    """What the scaler is called: the service's name, a dash and the role, as chat-draft."""
    spec: ScalerSpec
    """What is wanted."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        refuse_broken(self, SCALER)
        return self


def read_scaler(body: Mapping[str, Any]) -> SpeculativeRoleScaler:
    """Reads an object as an API server shows it; raises `SpecError`."""
    return validated(SpeculativeRoleScaler, described(body))
