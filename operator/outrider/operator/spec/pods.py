"""Settings of a role's pods in a cluster: their resources, files and rollouts.

They have no effect on `outrider run`; `manifests` builds the objects.
"""

import enum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, WithJsonSchema
from pydantic_core import PydanticCustomError

from outrider.operator.spec.part import (
    Count,
    CountOrPercent,
    ObjectName,
    Quantity,
    Rule,
    SpecPart,
)

Amounts = Annotated[dict[str, Quantity], Field(max_length=32)]


def _mappings(template: dict[str, Any]) -> dict[str, Any]:
    metadata = template.get("metadata", {})
    parts = [metadata, template.get("spec", {})]
    if isinstance(metadata, dict):
        parts += [metadata.get("labels", {}), metadata.get("annotations", {})]
    if not all(isinstance(part, dict) for part in parts):
        raise PydanticCustomError("pod_template", "a part of it is no mapping")
    return template


def _mapping(description: str, **parts: Any) -> dict[str, Any]:
    properties = {"properties": parts} if parts else {}
    return {
        "type": "object",
        "description": description,
        "additionalProperties": True,
        **properties,
    }


_METADATA = _mapping(
    "Labels and annotations of the pods.",
    labels=_mapping("Labels of the pods."),
    annotations=_mapping("Annotations of the pods."),
)
_TEMPLATE = _mapping("A PodTemplateSpec.", metadata=_METADATA, spec=_mapping("A PodSpec."))
PodTemplate = Annotated[dict[str, Any], AfterValidator(_mappings), WithJsonSchema(_TEMPLATE)]
"""Merged into a pod template: metadata, its labels and annotations, and spec are mappings where
they are there."""


def read_template(text: str) -> dict[str, Any]:
    """Read a pod template from JSON; raises `ValueError`."""
    return TypeAdapter(PodTemplate).validate_json(text)


_REGISTRY = r"(([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/)?"
_REPOSITORY = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
_TAG = r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
Image = Annotated[str, Field(pattern=f"^{_REGISTRY}{_REPOSITORY}{_TAG}$", max_length=512)]
"""Name of an image, as container runtimes read it."""


class Resources(SpecPart):
    """Resources of the container `main`, as in a Pod."""

    requests: Amounts | None = None
    """Amounts that must be free on a node, by resource: cpu, memory, nvidia.com/gpu."""
    limits: Amounts | None = None
    """Most that the container may use."""


class CacheType(enum.StrEnum):
    """Kinds of storage of prepared models."""

    EMPTY_DIR = "EmptyDir"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"


class AccessMode(enum.StrEnum):
    """Nodes and pods that may write to a claim at once."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class Cache(SpecPart):
    """Storage of prepared models and measurements."""

    rules = (
        Rule(
            "self.type == 'PersistentVolumeClaim' || (!has(self.claimName) &&"
            " !has(self.storageClassName) && self.accessMode == 'ReadWriteMany')",
            "must be PersistentVolumeClaim where claimName, storageClassName or another"
            " accessMode than ReadWriteMany is set",
            ".type",
        ),
        Rule(
            "self.type != 'PersistentVolumeClaim' || has(self.claimName) != has(self.size)",
            "type PersistentVolumeClaim needs claimName, of one that exists, or size, of one to"
            " make, not both",
        ),
        Rule(
            "!has(self.claimName) ||"
            " (!has(self.storageClassName) && self.accessMode == 'ReadWriteMany')",
            "must be left out where storageClassName or another accessMode than ReadWriteMany is"
            " set: they go with size, of a claim to make",
            ".claimName",
        ),
        Rule(
            "self.type == 'EmptyDir' || oldSelf.type == 'EmptyDir' || !has(self.size) ||"
            " !has(oldSelf.size) || (self.accessMode == oldSelf.accessMode &&"
            " has(self.storageClassName) == has(oldSelf.storageClassName) &&"
            " (!has(self.storageClassName) ||"
            " self.storageClassName == oldSelf.storageClassName) &&"
            " quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)",
            "a claim that was made keeps its accessMode and storageClassName, and cannot shrink",
        ),
    )

    type: CacheType = CacheType.EMPTY_DIR
    """EmptyDir: prepared anew by each pod. PersistentVolumeClaim: kept and shared by the role."""
    claim_name: ObjectName | None = None
    """A claim that exists already."""
    size: Quantity | None = None
    """Size of the claim to make, or most that an EmptyDir may hold. A claim's cannot shrink."""
    storage_class_name: ObjectName | None = None
    """Storage class of the claim to make; left out, the cluster's default. Cannot change."""
    access_mode: AccessMode = AccessMode.READ_WRITE_MANY
    """Access mode of the claim to make. ReadWriteOnce: pods on one node; ReadWriteOncePod: one pod.
    Others wait for it, in rollouts too. Cannot change."""


class Strategy(enum.StrEnum):
    """Ways to replace pods."""

    ROLLING_UPDATE = "RollingUpdate"
    RECREATE = "Recreate"


class Update(SpecPart):
    """Replacement of pods when the role changes."""

    rules = (
        Rule(
            "self.strategy == 'Recreate' || !(self.maxUnavailable == 0 ||"
            " self.maxUnavailable == '0%') || !(self.maxSurge == 0 || self.maxSurge == '0%')",
            "must not be 0 where maxUnavailable is 0 and strategy is RollingUpdate",
            ".maxSurge",
        ),
    )

    strategy: Strategy = Strategy.ROLLING_UPDATE
    """RollingUpdate: step by step. Recreate: the old pods end before new ones start, an outage that
    the condition Progressing announces."""
    max_unavailable: CountOrPercent = 0
    """RollingUpdate: most replicas that may be missing, as a number or a percentage."""
    max_surge: CountOrPercent = 1
    """RollingUpdate: most replicas above the wanted number."""
    progress_seconds: Count = Field(default=1800, ge=1, le=86_400)
    """A rollout that brings no new pod to readiness for so long has failed, and stops. A worker has
    as long to load its weights, and at least half an hour; another number above that replaces the
    pods."""

    @property
    def surges(self) -> bool:
        """True if new pods start before old ones end, on hardware of their own."""
        return self.strategy is Strategy.ROLLING_UPDATE and self.max_surge not in (0, "0%")


class DraftUpdate(Update):
    """Replacement of pods when the role changes."""

    max_unavailable: CountOrPercent = 1
    """RollingUpdate: most replicas that may be missing, as a number or a percentage. Targets decode
    plainly meanwhile."""
    max_surge: CountOrPercent = 0
    """RollingUpdate: most replicas above the wanted number."""
