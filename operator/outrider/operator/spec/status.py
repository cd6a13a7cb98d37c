"""Status of a service and of a scaler, as the operator writes it.

Leaves the reasons of conditions to `conditions`. It changes rarely: metrics are elsewhere.
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
MAX_RESOURCES = 64
MAX_ADVICE = 16
Advice = Annotated[str, Field(max_length=1024, description="One sentence.")]


class ConditionStatus(enum.StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(SpecPart):
    """One observation of the service."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """Type of the condition."""
    status: ConditionStatus
    """Status of the condition."""
    observed_generation: Generation | None = None
    """Generation of the service that was observed."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]*$", max_length=64)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, in a sentence."""


class RoleStatus(SpecPart):
    """The pods of one role."""

    replicas: Number = 0
    """Replicas that exist."""
    ready_replicas: Number = 0
    """Replicas that are ready."""
    updated_replicas: Number = 0
    """Replicas that are as the description says now."""
    desired_replicas: Number = 0
    """Replicas that are wanted now."""
    selector: Text | None = None
    """Selects one pod of each replica."""
    revision: Revision | None = None
    """Hash of the newest pod template."""
    next_revision: Revision | None = None
    """Hash of the pod template that this version of the operator would write; left out, it is the
    same. Pods take it up once the service's annotation `outrider.dev/restarted-at` changes."""

    @computed_field  # type: ignore[prop-decorator] # as pydantic's manual has it
    @property
    def ready(self) -> Annotated[str, Field(max_length=32)]:
        """Ready and wanted replicas, as 1/2."""
        return f"{self.ready_replicas}/{self.desired_replicas}"


class SpeculationStatus(SpecPart):
    """The last decision about drafting."""

    max_rows: Number = 0
    """Ceiling of node rows (draft tokens to verify) of a request in a pass; 0: drafting is off."""
    last_change_time: Time | None = None
    """When that last changed."""
    reason: Text = ""
    """Why, in a sentence."""
    gain_percent: Percent | None = None
    """Speed with drafts against that without, rounded to 5; 100: the same. What local sources bring
    is in neither."""
    hit_percent: Percent | None = None
    """Share of first draft tokens that were accepted, rounded to 5."""


class ResourceRef(SpecPart):
    """An object that the operator made."""

    kind: Annotated[str, Field(max_length=63)]
    """Its kind."""
    name: Annotated[str, Field(max_length=253)]
    """Its name, in the service's namespace."""


class ServiceStatus(SpecPart):
    """Last observed state of a service."""

    observed_generation: Generation | None = None
    """Generation of the service that was acted on."""
    rolled_out_generation: Generation | None = None
    """Newest generation of which all pods have been available."""
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
    """The pods that propose draft tokens; where they are the targets', ready means linked."""
    speculation: SpeculationStatus | None = None
    """The last decision about drafting."""
    url: Annotated[str, Field(max_length=2048)] | None = None
    """URL of the OpenAI-compatible API inside the cluster."""
    resources: Annotated[
        tuple[ResourceRef, ...],
        Field(max_length=MAX_RESOURCES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Objects that the operator made, at most 64 of them."""
    advice: Annotated[
        tuple[Advice, ...],
        Field(max_length=MAX_ADVICE, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """What is allowed and probably not meant, and fields that this operator does not know and
    ignores; at most 16 sentences."""
    admitted: Annotated[
        tuple[Advice, ...],
        Field(max_length=MAX_ADVICE, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """What not everybody may ask for and the author of this `spec` was let have, in the words of
    the admission policy; what else it has of that is in `advice`."""


class ScalerStatus(SpecPart):
    """Status of a scaler, for autoscalers."""

    observed_generation: Generation | None = None
    """Generation of the scaler that was acted on."""
    replicas: Number = 0
    """Replicas that exist."""
    selector: Text | None = None
    """Selects one pod of each replica."""
