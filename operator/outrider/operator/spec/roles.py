"""The two roles: their replicas, the owner of that number, and the settings of one replica.

Leaves placing and starting them to `plan` and its callers.
"""

import enum
from typing import ClassVar, Literal

from pydantic import Field

from outrider.contract.settings import MAX_QUEUE_SECONDS, MAX_REQUEST_SECONDS, MAX_WAITING
from outrider.operator.spec import placement_rules
from outrider.operator.spec.engine import (
    DraftEngine,
    EngineSpec,
    Parallelism,
    Pipeline,
    TargetEngine,
    TargetParallelism,
)
from outrider.operator.spec.model import DraftModel, ModelSource, TargetModel
from outrider.operator.spec.part import Count, Rule, SpecPart
from outrider.operator.spec.pods import Cache, DraftUpdate, Image, PodTemplate, Resources, Update

MAX_REPLICAS = 1024


class Placement(enum.StrEnum):
    """Place of the draft."""

    AUTO = "Auto"
    SEPARATE = "Separate"
    SAME_POD = "SamePod"
    COLOCATED = "Colocated"


class Offload(enum.StrEnum):
    """Whether the memory of a Colocated draft may be lent to its target's KV."""

    AUTO = "Auto"
    NEVER = "Never"
    ALWAYS = "Always"


class ScalingMode(enum.StrEnum):
    """Owner of the number of replicas."""

    STATIC = "Static"
    EXTERNAL = "External"
    MANAGED = "Managed"


class Scaling(SpecPart):
    """Owner of the number of replicas, and its bounds."""

    rules = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "must not be more than maxReplicas",
            ".minReplicas",
        ),
    )

    mode: ScalingMode = ScalingMode.STATIC
    """Static: `replicas`. External: an autoscaler, through a SpeculativeRoleScaler."""
    min_replicas: Count = Field(default=1, ge=1, le=MAX_REPLICAS)
    """External: least replicas."""
    max_replicas: Count = Field(default=4, ge=1, le=MAX_REPLICAS)
    """External: most replicas."""


class TargetScaling(Scaling):
    """Owner of the number of replicas, and its bounds."""

    mode: Literal[ScalingMode.STATIC, ScalingMode.EXTERNAL] = ScalingMode.STATIC
    """Static: `replicas`. External: an autoscaler, through a SpeculativeRoleScaler."""


class DraftScaling(Scaling):
    """Owner of the number of replicas, and its bounds."""

    mode: ScalingMode = ScalingMode.MANAGED
    """Static: `replicas`. External: an autoscaler, through a SpeculativeRoleScaler. Managed: the
    operator, as `speculation.draftShrink` says."""
    min_replicas: Count = Field(default=0, ge=0, le=MAX_REPLICAS)
    """External: least replicas. Managed: replicas that stay while drafting is off; with 0 all
    hardware of the draft is given back."""
    max_replicas: Count = Field(default=4, ge=1, le=MAX_REPLICAS)
    """External and Managed: most replicas."""


class Requests(SpecPart):
    """Limits of requests; each target keeps them for itself."""

    max_seconds: Count = Field(default=570, ge=1, le=MAX_REQUEST_SECONDS)
    """Longest time for a request that names no deadline of its own. In a cluster a pod that ends
    has so long, and 30 s more, to finish what runs: 600 s, as cluster-autoscaler allows."""
    max_queue_seconds: Count = Field(default=60, ge=1, le=MAX_QUEUE_SECONDS)
    """Longest time that a request waits for its first step; then it ends without running."""
    max_waiting: Count = Field(default=64, ge=0, le=MAX_WAITING)
    """Requests that may wait beside those that run; more are refused."""
    cut_max_tokens: bool = True
    """Whether a chat over HTTP that asks for more tokens than the context has room for gets those
    that it has; else it is refused."""


class RoleSpec(SpecPart):
    """Settings of both roles."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.scaling.mode != 'External' || !has(self.replicas)",
            "must be left out where scaling.mode is External: the scaler has the number",
            ".replicas",
        ),
        Rule(
            "self.engine.allReduce == 'Gather' || (self.engine.device != 'CPU' &&"
            " self.parallelism.tensor > 1 && self.parallelism.nodes == 1)",
            "must be Gather unless parallelism.tensor is more than 1, on one node, and device is"
            " not CPU: the others add up between the GPUs of one machine",
            ".engine.allReduce",
        ),
    )

    model: ModelSource
    """Model of the role."""
    replicas: Count | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    """Number of workers; left out, 1 at first, and then the operator leaves the number alone."""
    scaling: Scaling = Scaling()
    """Owner of the number of replicas, and its bounds."""
    engine: EngineSpec = EngineSpec()
    """Engine settings."""
    parallelism: Parallelism = Parallelism()
    """Processes and machines of one replica."""
    image: Image | None = None
    """Container image; left out, the operator's own for workers."""
    resources: Resources | None = None
    """Resources of the container `main`. GPUs that `engine.device` asks for are added."""
    pod_template: PodTemplate | None = None
    """Merged into the pods that the operator makes: a PodTemplateSpec whose container `main` is the
    worker's."""
    cache: Cache = Cache()
    """Storage of prepared models."""
    update: Update = Update()
    """Replacement of pods when the role changes."""

    @property
    def first_replicas(self) -> int:
        """Replicas at first."""
        return 1 if self.replicas is None else self.replicas


class Target(RoleSpec):
    """The role that answers."""

    rules = (
        Rule(
            "self.parallelism.pipeline == 1 || self.engine.device != 'GPU'",
            "must not be GPU where parallelism.pipeline is more than 1: stages compute on CPUs",
            ".engine.device",
        ),
        Rule(
            "self.engine.prefill == 'Exact' || (self.engine.device != 'CPU' &&"
            " self.parallelism.pipeline == 1)",
            "must be Exact where device is CPU or parallelism.pipeline is more than 1",
            ".engine.prefill",
        ),
        Rule(
            "!has(self.pipeline.cut) || self.pipeline.cut.size() == self.parallelism.pipeline",
            "must have one number for each of the stages that parallelism.pipeline says",
            ".pipeline.cut",
        ),
    )

    model: TargetModel
    """The model whose text is served."""
    replicas: Count | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    """Target workers; each answers requests, and all pair with the same drafts. Left out, 1 at
    first, and then the operator leaves the number alone."""
    scaling: TargetScaling = TargetScaling()
    """Owner of the number of replicas, and its bounds."""
    engine: TargetEngine = TargetEngine()
    """Engine settings."""
    parallelism: TargetParallelism = TargetParallelism()
    """Processes and machines of one replica."""
    pipeline: Pipeline = Pipeline()
    """The cut of the layers over the stages of `parallelism.pipeline`."""
    requests: Requests = Requests()
    """Limits of requests."""


class Draft(RoleSpec):
    """The role that proposes draft tokens."""

    rules = (
        Rule(
            "self.scaling.mode != 'Managed' || !has(self.replicas) || (self.scaling.minReplicas <="
            " self.replicas && self.replicas <= self.scaling.maxReplicas)",
            "must be from scaling.minReplicas to scaling.maxReplicas where scaling.mode is Managed",
            ".replicas",
        ),
        *placement_rules.DRAFT,
    )

    model: DraftModel
    """The model that proposes draft tokens."""
    replicas: Count | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    """Draft workers; with 0 the target decodes plainly. Left out, 1 at first. Where scaling.mode is
    Managed this is the number at first, and then the operator's."""
    scaling: DraftScaling = DraftScaling()
    """Owner of the number of replicas, and its bounds."""
    engine: DraftEngine = DraftEngine()
    """Engine settings. A colocated draft uses the target's threads, at most 4, and its context."""
    update: DraftUpdate = DraftUpdate()
    """Replacement of pods when the role changes."""
    placement: Placement = Placement.AUTO
    """Separate: a worker of its own, in a cluster with pods of its own. SamePod: a container of its
    own in each target's pod, which share memory. Colocated: inside the target, with which it takes
    turns. Auto: in a cluster Separate; `outrider run` takes what is fastest on its machine."""
    offload: Offload = Offload.AUTO
    """Auto: on a CPU, a Colocated draft's weights go to a file, and its bytes to the target's KV,
    while that is short and drafting gains less. Always: also on a GPU, to host memory, an error
    where that cannot be; no device has tried it yet. Never: the draft keeps its memory."""

    @property
    def is_worker(self) -> bool:
        """True if it is a process of its own, linked to targets."""
        return self.placement is not Placement.COLOCATED

    @property
    def has_pods(self) -> bool:
        """True if it has pods of its own in a cluster, whose number may change."""
        return self.placement in (Placement.AUTO, Placement.SEPARATE)
