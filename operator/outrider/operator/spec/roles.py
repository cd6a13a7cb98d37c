"""The two roles: how many replicas each has, who decides that, and what one replica is.

Who places and starts them is `plan`'s and the hands'.
"""

import enum

from pydantic import Field

from outrider.contract.settings import MAX_QUEUE_SECONDS, MAX_REQUEST_SECONDS, MAX_WAITING
from outrider.operator.spec.engine import DraftEngine, EngineSpec, Parallelism, TargetEngine
from outrider.operator.spec.model import DraftModel, Model, TargetModel
from outrider.operator.spec.part import Count, Quantity, SpecPart
from outrider.operator.spec.pods import Cache, Image, PodTemplate, Resources, Update

MAX_REPLICAS = 1024


class Placement(enum.StrEnum):
    """Where the draft runs."""

    SEPARATE = "Separate"
    COLOCATED = "Colocated"


class ScalingMode(enum.StrEnum):
    """Who decides the number of replicas."""

    STATIC = "Static"
    EXTERNAL = "External"
    MANAGED = "Managed"


class Scaling(SpecPart):
    """Who decides the number of replicas."""

    mode: ScalingMode = ScalingMode.STATIC
    """Static: `replicas`. External: an autoscaler, through a SpeculativeRoleScaler."""
    min_replicas: Count = Field(default=1, ge=1, le=MAX_REPLICAS)
    """External: fewer are never run."""
    max_replicas: Count = Field(default=4, ge=1, le=MAX_REPLICAS)
    """External: more are never run."""


class DraftScaling(Scaling):
    """Who decides the number of replicas."""

    mode: ScalingMode = ScalingMode.MANAGED
    """Static: `replicas`. External: an autoscaler, through a SpeculativeRoleScaler. Managed: the
    operator, as `speculation.draftShrink` says."""
    min_replicas: Count = Field(default=0, ge=0, le=MAX_REPLICAS)
    """External: fewer are never run. Managed: how many stay while drafting is off; with 0 all
    hardware of the draft is given back."""
    max_replicas: Count = Field(default=4, ge=1, le=MAX_REPLICAS)
    """External and Managed: more are never run."""


class Requests(SpecPart):
    """Limits of requests; each target keeps them for itself."""

    max_seconds: Count = Field(default=600, ge=1, le=MAX_REQUEST_SECONDS)
    """Longest time for a request that names no deadline of its own."""
    max_queue_seconds: Count = Field(default=60, ge=1, le=MAX_QUEUE_SECONDS)
    """Longest that a request waits for its first step; then it ends unrun."""
    max_waiting: Count = Field(default=64, ge=0, le=MAX_WAITING)
    """Requests that may wait beside those that run; more are refused."""


class RoleSpec(SpecPart):
    """What both roles have."""

    model: Model
    """The model that it loads."""
    replicas: Count | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    """How many workers; left out, 1 at first, and then the operator leaves the number alone."""
    scaling: Scaling = Scaling()
    """Who decides the number of replicas."""
    engine: EngineSpec = EngineSpec()
    """How it computes."""
    parallelism: Parallelism = Parallelism()
    """Over how many processes one replica is cut."""
    image: Image | None = None
    """Container image; left out, the operator's own for workers."""
    resources: Resources | None = None
    """Resources of the container `main`."""
    shared_memory_size: Quantity | None = None
    """Size of /dev/shm, as 8Gi; left out, the container runtime's."""
    pod_template: PodTemplate | None = None
    """Laid over the pods that the operator makes: a PodTemplateSpec whose container `main` is the
    worker's."""
    cache: Cache = Cache()
    """Where pods keep prepared models."""
    update: Update = Update()
    """How pods are replaced when the role changes."""

    @property
    def first_replicas(self) -> int:
        """How many there are at first."""
        return 1 if self.replicas is None else self.replicas


class Target(RoleSpec):
    """The role that answers."""

    model: TargetModel
    """The model whose text is served."""
    replicas: Count | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    """Target workers; each answers requests, and all pair with the same drafts. Left out, 1 at
    first, and then the operator leaves the number alone."""
    engine: TargetEngine = TargetEngine()
    """How it computes."""
    requests: Requests = Requests()
    """How many requests may wait, and for how long."""


class Draft(RoleSpec):
    """The role that guesses ahead."""

    model: DraftModel
    """The model that guesses."""
    replicas: Count | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    """Draft workers; with 0 the target decodes plainly. Left out, 1 at first. Where scaling.mode is
    Managed this is the number at first, and then the operator's."""
    scaling: DraftScaling = DraftScaling()
    """Who decides the number of replicas."""
    engine: DraftEngine = DraftEngine()
    """How it computes. A colocated draft uses the target's threads and context."""
    placement: Placement = Placement.SEPARATE
    """Separate: a worker of its own. Colocated: inside the target, in turn with it."""
