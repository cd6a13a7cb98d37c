"""Engine settings of a role: its numeric path, its memory, its parallelism.

Leaves defaults that depend on the model to the worker.
"""

import enum
from typing import Annotated, ClassVar

from pydantic import Field

from outrider.contract.settings import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_RUNNING,
    MAX_STAGES,
    MAX_THREADS,
    MIN_CONTEXT,
    Dtype,
    StageDtype,
)
from outrider.operator.spec.part import Count, Rule, SpecPart

Bytes = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,6}Mi|[1-9][0-9]{0,3}Gi)$")]
Layers = Annotated[int, Field(strict=True, ge=1, le=MAX_LAYERS, description="Layers of one stage.")]
Degree = Annotated[int, Field(strict=True, ge=1, le=64)]
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


class DeviceKind(enum.StrEnum):
    """Device of a role's models."""

    AUTO = "Auto"
    CPU = "CPU"
    GPU = "GPU"


class AllReduceMode(enum.StrEnum):
    """How the ranks of a model on GPUs add up their parts."""

    GATHER = "Gather"
    ONE_SHOT = "OneShot"
    FUSED = "Fused"


class PrefillMode(enum.StrEnum):
    """What computes the linear layers of prompts."""

    EXACT = "Exact"
    LIBRARY = "Library"


class EngineSpec(SpecPart):
    """Engine settings of a role."""

    rules = (
        Rule(
            "!(self.device == 'GPU' && self.dtype in ['int8', 'int4']) &&"
            " !(self.device == 'CPU' && self.dtype == 'fp8')",
            "must go with device: int8 and int4 are for CPUs alone, fp8 is for GPUs alone",
            ".dtype",
        ),
    )

    device: DeviceKind = DeviceKind.AUTO
    """Device of the models; Auto takes a GPU where the pod or the machine has one, and GPU is
    an error where there is none. In a cluster GPU asks for one for each rank of a pod
    (nvidia.com/gpu) unless resources.limits names GPUs; and limits that do mean GPU."""
    dtype: Dtype = Dtype.AUTO
    """Numeric type of the weights. auto on a CPU is int4, which keeps quants as they are, for a
    quantised GGUF file, and is measured once for other models; on a GPU it is bf16, except for FP8,
    AWQ and GPTQ matrices that kernels take as they are. int8 and int4 are for CPUs, fp8 for GPUs
    alone."""
    threads: Count = Field(default=1, ge=1, le=MAX_THREADS)
    """Threads that the engine computes with. If it is left out and draft.placement is Auto,
    `outrider run` takes the number that is fastest."""
    max_context: Count | None = Field(default=None, ge=MIN_CONTEXT, le=MAX_CONTEXT)
    """Most tokens of prompt and answer together; left out, the model's own limit, at most 4096."""
    kv_memory: Bytes | None = None
    """Memory for the KV cache, as 512Mi or 4Gi, of each stage for its own layers; on a CPU a
    Colocated draft's weights and KV are part of it. Left out, room for maxRunning requests
    of the longest context, but no more than 2Gi unless one request needs it, and on a GPU most of
    what its weights leave."""
    all_reduce: AllReduceMode = AllReduceMode.GATHER
    """How ranks on GPUs add up after each half layer: Gather by NCCL and a kernel; OneShot and
    Fused by flag words between the GPUs of one machine, in a launch of their own or in the
    product's. These two have not run on two GPUs yet."""

    @property
    def kv_bytes(self) -> int | None:
        """`kv_memory` as a number."""
        memory = self.kv_memory
        return None if memory is None else int(memory[:-2]) * _UNITS[memory[-2:]]


class TargetEngine(EngineSpec):
    """Engine settings of the target."""

    max_running: Count = Field(default=8, ge=1, le=MAX_RUNNING)
    """Requests that run at once; others wait."""
    prefix_cache: bool = Field(default=True, strict=True)
    """Keeps the KV of prompts and answers for later requests with the same prefix, in the target
    and in its drafts."""
    prefill: PrefillMode = PrefillMode.EXACT
    """Library: on a GPU, prompts by the vendor's library, which no device has measured yet. Texts
    differ from those of Exact."""


class DraftEngine(EngineSpec):
    """Engine settings of a draft."""

    max_running: Count | None = Field(default=None, ge=1, le=MAX_RUNNING)
    """Sessions that are open at once. Left out, the target's maxRunning, times its
    scaling.maxReplicas where that is External, at most 1024: not times its replicas, for scaling
    targets must not start drafts anew. `outrider run`, which scales no targets: times replicas."""
    max_context: Count | None = Field(default=None, ge=MIN_CONTEXT, le=MAX_CONTEXT)
    """Most tokens of prompt and answer together; left out, the target's, and where that is left out
    too, the model's own limit, at most 4096."""


class Parallelism(SpecPart):
    """Processes and machines of one replica."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.tensor % self.nodes == 0", "must divide tensor", ".nodes"),
    )

    tensor: Degree = 1
    """Ranks that share every layer."""
    nodes: Degree = 1
    """Machines that one replica spans, with a pod on each that runs tensor / nodes ranks. Only the
    first of its pods answers, and the replica starts and goes as a whole."""

    @property
    def pods(self) -> int:
        """Pods of one replica."""
        return self.nodes

    @property
    def ranks(self) -> int:
        """Ranks of one pod."""
        return self.tensor // self.nodes

    @property
    def stages(self) -> int:
        """Stages that the layers are cut over."""
        return 1


class TargetParallelism(Parallelism):
    """Processes and machines of one replica."""

    rules = (
        Rule(
            "self.pipeline == 1 || self.nodes == 1",
            "must be 1 where pipeline is more than 1: each stage is one pod",
            ".nodes",
        ),
    )

    pipeline: Annotated[int, Field(strict=True, ge=1, le=MAX_STAGES)] = 1
    """Stages that the layers are cut over, each of `tensor` ranks, at most one a layer. In a
    cluster a stage is a pod; the first answers, and the replica starts and goes as a whole."""

    @property
    def pods(self) -> int:
        """Pods of one replica."""
        return self.nodes * self.pipeline

    @property
    def stages(self) -> int:
        """Stages that the layers are cut over."""
        return self.pipeline


class StageLinkKind(enum.StrEnum):
    """What carries the records between the stages of a target."""

    GRPC = "GRPC"
    DISTRIBUTED = "Distributed"


class Pipeline(SpecPart):
    """The cut of the layers over the stages of `parallelism.pipeline`."""

    cut: Annotated[tuple[Layers, ...], Field(max_length=MAX_STAGES)] | None = None
    """Layers of each stage, in their order: the model's in sum. Left out, stages cut by the weights
    that each part reads, the head included; under `outrider run` by the times that parts take."""
    dtype: StageDtype = StageDtype.AUTO
    """Numbers of the hidden vectors between stages; auto sends them as they were computed, so that
    the text stays that of one process. bf16 and fp16 halve the bytes of fp32."""
    link: StageLinkKind = StageLinkKind.GRPC
    """GRPC: streams. Distributed: torch.distributed with gloo beside them, which takes the network
    that GLOO_SOCKET_IFNAME names; the pods of a target's stages may reach each other on any port
    either way."""
