"""`SpeculativeService`, the whole description, and how it is read.

What its parts mean is in their modules, what they must keep between them in `rules`.
"""

import enum
import posixpath
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from outrider.operator.document import SpecError, read_document
from outrider.operator.naming import API_VERSION, KIND
from outrider.operator.spec.part import SpecPart
from outrider.operator.spec.reading import Metadata, described, validated
from outrider.operator.spec.roles import Draft, Target
from outrider.operator.spec.rules import SERVICE, refuse_broken
from outrider.operator.spec.speculation import ShrinkPolicy, Speculation
from outrider.operator.spec.surroundings import (
    InferencePool,
    Metrics,
    Monitoring,
    NetworkPolicy,
    PodDisruptionBudget,
    Topology,
)


class Suspend(enum.StrEnum):
    """Whether pods are wanted at all."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"


class Spec(SpecPart):
    """What is wanted."""

    target: Target
    """The role that answers."""
    draft: Draft | None = None
    """The role that guesses ahead; left out, the target decodes plainly."""
    speculation: Speculation = Speculation()
    """How far the draft may run ahead."""
    topology: Topology = Topology()
    """Where drafts run, seen from the targets."""
    metrics: Metrics = Metrics()
    """How the operator reads the workers' metrics."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may reach the pods."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """How many replicas of a role evictions may break at once."""
    monitoring: Monitoring = Monitoring()
    """Whether Prometheus is told of the pods."""
    inference_pool: InferencePool = InferencePool()
    """Whether gateways of the Gateway API find the targets."""
    suspend: Suspend = Suspend.RUNNING
    """Suspended: no pods of either role; everything else stays."""

    @property
    def shrink_policy(self) -> ShrinkPolicy:
        """`speculation.draftShrink.policy` with its default, which depends on who scales."""
        managed = self.draft is not None and self.draft.scaling.mode == "Managed"
        default = ShrinkPolicy.WHEN_DISABLED if managed else ShrinkPolicy.NEVER
        return self.speculation.draft_shrink.policy or default


class SpeculativeService(SpecPart):
    """A model served through a target and, if there is one, a draft that guesses ahead of it."""

    api_version: Literal["outrider.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["SpeculativeService"]
    """Always SpeculativeService."""
    metadata: Metadata
    """What the service is called."""
    spec: Spec
    """What is wanted."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        refuse_broken(self, SERVICE)
        return self

    @property
    def served_name(self) -> str:
        """The model name that requests use."""
        return self.spec.target.model.served_name or self.metadata.name

    def at_folder(self, folder: str) -> Self:
        """A copy whose relative `file://` URIs are taken from `folder`, an absolute path."""
        data = self.model_dump(by_alias=True, exclude_unset=True)
        roles = (data["spec"]["target"], data["spec"].get("draft"))
        for model in (role["model"] for role in roles if role is not None):
            model["uri"] = _at_folder(model["uri"], folder)
        return type(self).model_validate(data)


def load(text: str) -> SpeculativeService:
    """Reads one YAML document; raises `SpecError` that names each problem's path, value and
    what is allowed."""
    document = read_document(text)
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, KIND):
        raise SpecError(
            f"apiVersion {found[0]!r} and kind {found[1]!r} are not served; "
            f"allowed: {API_VERSION} and {KIND}"
        )
    return validated(SpeculativeService, document)


def read_object(body: Mapping[str, Any]) -> SpeculativeService:
    """Reads an object as an API server shows it, without what the server keeps for itself.

    Raises `SpecError` as `load` does: the server may know a newer schema than this program.
    """
    return validated(SpeculativeService, described(body))


def _at_folder(uri: str, folder: str) -> str:
    path = uri.removeprefix("file://")
    return uri if path == uri else f"file://{posixpath.normpath(posixpath.join(folder, path))}"
