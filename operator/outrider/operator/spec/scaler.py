"""`SpeculativeRoleScaler`: the number of replicas of one role, for autoscalers to write.

The operator makes one for each role whose scaling is External; people rarely write it.
"""

import enum
from typing import Literal

from pydantic import Field

from outrider.operator.spec.part import Count, ObjectName, Rule, SpecPart
from outrider.operator.spec.reading import Metadata
from outrider.operator.spec.roles import MAX_REPLICAS


class ScaledRole(enum.StrEnum):
    """Role that is scaled."""

    TARGET = "Target"
    DRAFT = "Draft"


class ScalerSpec(SpecPart):
    """Number of replicas of one role."""

    service: ObjectName
    """Name of the SpeculativeService. Cannot change: the scaler has it in its name."""
    role: ScaledRole
    """Role that is scaled. Cannot change: the scaler has it in its name."""
    replicas: Count = Field(ge=0, le=MAX_REPLICAS)
    """Wanted replicas; the role's scaling.minReplicas and maxReplicas bound them."""


class SpeculativeRoleScaler(SpecPart):
    """The number of replicas of one role of a service, with the subresource `scale`."""

    rules = (
        Rule(
            "self.metadata.name == self.spec.service + '-' + self.spec.role.lowerAscii()",
            "must be the service's name, a dash and the role in lower case",
            ".metadata.name",
        ),
    )

    api_version: Literal["outrider.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["SpeculativeRoleScaler"]
    """Always SpeculativeRoleScaler."""
    metadata: Metadata
    """Name of the scaler: the service's name, a dash and the role, as chat-draft."""
    spec: ScalerSpec
    """Number of replicas of one role."""
