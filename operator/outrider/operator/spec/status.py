"""What the operator reports of a service and of a scaler.

The words of conditions are `conditions`'; small and slow on purpose: metrics are elsewhere.
"""

import enum
from typing import Annotated

from pydantic import Field, computed_field

from outrider.operator.spec.part import SpecPart

Number = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Generation = Annotated[int, Field(ge=0)]  # no most: 2^63-1 is no number to an API server
Percent = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Text = Annotated[str, Field(max_length=1024)]
Revision = Annotated[str, Field(max_length=64)]
MAX_CONDITIONS = 16
MAX_RESOURCES = 16


class ConditionStatus(enum.StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(SpecPart):
    """One observation."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """What is observed."""
    status: ConditionStatus
    """Whether it holds."""
    observed_generation: Generation | None = None
    """Which generation of the service was observed."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]*$", max_length=64)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, in a sentence."""


class RoleStatus(SpecPart):
    """The pods of one role."""

    replicas: Number = 0
    """How many there are."""
    ready_replicas: Number = 0
    """How many of them are ready."""
    updated_replicas: Number = 0
    """How many are as the description says now."""
    desired_replicas: Number = 0
    """How many are wanted now."""
    selector: Text | None = None
    """Selects one pod of each replica."""
    revision: Revision | None = None
    """Hash of what their pods are made of now."""

    @computed_field  # type: ignore[prop-decorator] # as pydantic's manual has it
    @property
    def ready(self) -> Annotated[str, Field(max_length=32)]:
        """Ready and wanted replicas, as 1/2."""
        return f"{self.ready_replicas}/{self.desired_replicas}"


class SpeculationStatus(SpecPart):
    """What was last decided about drafting."""

    max_rows: Number = 0
    """Ceiling of guessed rows of one request in one pass; 0: drafting is off."""
    last_change_time: Time | None = None
    """When that last changed."""
    reason: Text = ""
    """Why, in a sentence."""
    gain_percent: Percent | None = None
    """Speed against plain decoding, rounded to 5; 100: the same."""
    hit_percent: Percent | None = None
    """Share of first guesses that were right, rounded to 5."""


class ResourceRef(SpecPart):
    """An object that the operator made."""

    kind: Annotated[str, Field(max_length=63)]
    """Its kind."""
    name: Annotated[str, Field(max_length=253)]
    """Its name, in the service's namespace."""


class ServiceStatus(SpecPart):
    """What was last observed of a service."""

    observed_generation: Generation | None = None
    """Which generation of the service was acted on."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=MAX_CONDITIONS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Observations, one of each type."""
    target: RoleStatus | None = None
    """The pods that answer."""
    draft: RoleStatus | None = None
    """The pods that guess ahead."""
    speculation: SpeculationStatus | None = None
    """What was last decided about drafting."""
    url: Annotated[str, Field(max_length=2048)] | None = None
    """Where the OpenAI-compatible API answers inside the cluster."""
    resources: Annotated[
        tuple[ResourceRef, ...],
        Field(max_length=MAX_RESOURCES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """What the operator made, at most 16 of them."""


class ScalerStatus(SpecPart):
    """What an autoscaler reads."""

    observed_generation: Generation | None = None
    """Which generation of the scaler was acted on."""
    replicas: Number = 0
    """How many there are."""
    selector: Text | None = None
    """Selects one pod of each replica."""
