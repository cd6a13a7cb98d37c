"""`SpeculativeService`: what a user writes in YAML, as types that hold only what is allowed.

Neither starts nor contacts anything; `plan` says which workers follow. Floats are left out on
purpose: the same fields become a Kubernetes resource, where floats are not welcome.
"""

import enum
import posixpath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from outrider.contract.settings import (
    LEAST_CONTEXT,
    MOST_CONTEXT,
    MOST_DEPTH,
    MOST_GAIN_PERCENT,
    MOST_NODES_AHEAD,
    MOST_QUEUE_SECONDS,
    MOST_REQUEST_SECONDS,
    MOST_ROWS,
    MOST_RUNNING,
    MOST_THREADS,
    MOST_WAITING,
    MOST_WIDTH,
    Dtype,
    PolicySettings,
)
from outrider.operator.document import SpecError, read_document
from outrider.operator.naming import API_VERSION, KIND
from outrider.operator.problems import describe

__all__ = ["SpecError", "SpeculativeService", "load"]

_DEFAULTS = PolicySettings()

Uri = Annotated[str, Field(pattern=r"^(file|hf|package)://[^/\s].*$|^file:///.+$", max_length=512)]
Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
Count = Annotated[int, Field(strict=True)]
Bytes = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,6}Mi|[1-9][0-9]{0,3}Gi)$")]
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


class Part(BaseModel):
    """Base of all parts: camelCase keys, no unknown keys, no change after reading."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class Placement(enum.StrEnum):
    """Where the draft runs."""

    SEPARATE = "Separate"
    COLOCATED = "Colocated"


class EmbeddingsFrom(enum.StrEnum):
    """Whose embedding a draft borrows."""

    TARGET = "Target"


class Engine(Part):
    """How a role computes."""

    dtype: Dtype = Dtype.AUTO
    """Numeric path of the weights; auto measures the machine once."""
    threads: Count = Field(default=1, ge=1, le=MOST_THREADS)
    """Threads that the engine computes with."""
    max_context: Count | None = Field(default=None, ge=LEAST_CONTEXT, le=MOST_CONTEXT)
    """Most tokens of prompt and answer together; left out, a draft takes the target's, and where
    that is left out too, each takes its model's own limit, at most 4096."""
    max_running: Count = Field(default=8, ge=1, le=MOST_RUNNING)
    """Requests (target) or sessions (draft) that are worked on at once; others wait. A draft's
    default is maxRunning times replicas of the target, at most 1024."""
    kv_memory: Bytes | None = None
    """Memory for keys and values, as 512Mi or 4Gi; left out, room for maxRunning requests of the
    longest context, but no more than 2Gi unless one request needs it."""
    prefix_cache: bool = Field(default=True, strict=True)
    """Whether KV of prompts and answers is kept for later requests that begin alike."""

    @property
    def kv_bytes(self) -> int | None:
        """`kv_memory` as a number."""
        memory = self.kv_memory
        return None if memory is None else int(memory[:-2]) * _UNITS[memory[-2:]]


class Requests(Part):
    """Limits of requests; each target keeps them for itself."""

    max_seconds: Count = Field(default=600, ge=1, le=MOST_REQUEST_SECONDS)
    """Longest time for a request that names no deadline of its own."""
    max_queue_seconds: Count = Field(default=60, ge=1, le=MOST_QUEUE_SECONDS)
    """Longest that a request waits for its first step; then it ends unrun."""
    max_waiting: Count = Field(default=64, ge=0, le=MOST_WAITING)
    """Requests that may wait beside those that run; more are refused."""


class TargetModel(Part):
    """The model whose text is served."""

    uri: Uri
    """Where the weights are: file://, hf:// or package://."""
    served_name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The name that requests use; left out, the name of the service."""


class DraftModel(Part):
    """The model that guesses."""

    uri: Uri
    """Where the weights are: file://, hf:// or package://."""
    embeddings_from: EmbeddingsFrom | None = None
    """Target: the checkpoint holds no embedding and borrows the target's."""


class Target(Part):
    """The role that answers."""

    model: TargetModel
    """The model whose text is served."""
    replicas: Count = Field(default=1, ge=1, le=1024)
    """Target workers; each answers requests, and all pair with the same drafts."""
    engine: Engine = Engine()
    """How it computes."""
    requests: Requests = Requests()
    """How many requests may wait, and for how long."""


class Draft(Part):
    """The role that guesses ahead."""

    model: DraftModel
    """The model that guesses."""
    placement: Placement = Placement.SEPARATE
    """Separate: a worker of its own. Colocated: inside the target, in turn with it."""
    replicas: Count = Field(default=1, ge=0, le=1024)
    """Draft workers; with 0 the target decodes plainly."""
    engine: Engine = Engine()
    """How it computes. A colocated draft uses the target's threads and context."""

    @field_validator("replicas")
    @classmethod
    def _one_colocated(cls, replicas: int, info: ValidationInfo) -> int:
        if info.data.get("placement") is Placement.COLOCATED and replicas != 1:
            raise PydanticCustomError("conflict", "1, because the placement is Colocated")
        return replicas

    @field_validator("engine")
    @classmethod
    def _only_dtype_colocated(cls, engine: Engine, info: ValidationInfo) -> Engine:
        own = engine.model_fields_set - {"dtype"}
        if info.data.get("placement") is Placement.COLOCATED and own:
            raise PydanticCustomError("conflict", "only dtype, because the placement is Colocated")
        return engine


class Speculation(Part):
    """How far the draft may run ahead."""

    enabled: bool = Field(default=True, strict=True)
    """False: no draft is started, the target decodes plainly."""
    max_rows: Count = Field(default=_DEFAULTS.max_rows, ge=1, le=MOST_ROWS)
    """Ceiling of guessed rows of one request in one verify pass."""
    depth: Count = Field(default=_DEFAULTS.depth, ge=1, le=MOST_DEPTH)
    """Longest path drafted."""
    width: Count = Field(default=_DEFAULTS.width, ge=1, le=MOST_WIDTH)
    """Leaves expanded in one draft pass."""
    nodes_ahead: Count = Field(default=_DEFAULTS.nodes_ahead, ge=1, le=MOST_NODES_AHEAD)
    """Live guesses that a draft may hold for one request."""
    off_below_gain_percent: Count = Field(
        default=_DEFAULTS.off_below_percent, ge=0, le=MOST_GAIN_PERCENT
    )
    """Gain under which drafting goes off for a while; 0: it never does."""
    on_above_gain_percent: Count = Field(
        default=_DEFAULTS.on_above_percent, ge=0, le=MOST_GAIN_PERCENT
    )
    """Gain that a probe must show for drafting to come back."""


class Spec(Part):
    """What is wanted."""

    target: Target
    """The role that answers."""
    draft: Draft | None = None
    """The role that guesses ahead; left out, the target decodes plainly."""
    speculation: Speculation = Speculation()
    """How far the draft may run ahead."""


class Metadata(Part):
    """What Kubernetes calls the object."""

    name: Name
    """Name of the service: at most 40 characters."""
    namespace: Name | None = None
    """Namespace in a cluster; means nothing to `outrider run`."""
    labels: dict[str, str] = {}
    """Labels in a cluster; mean nothing to `outrider run`."""
    annotations: dict[str, str] = {}
    """Annotations in a cluster; mean nothing to `outrider run`."""


class SpeculativeService(Part):
    """A model served through a target and, if there is one, a draft that guesses ahead of it."""

    api_version: Literal["outrider.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["SpeculativeService"]
    """Always SpeculativeService."""
    metadata: Metadata
    """What the service is called."""
    spec: Spec
    """What is wanted."""

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
    try:
        return SpeculativeService.model_validate(document)
    except ValidationError as error:
        schema = SpeculativeService.model_json_schema()
        raise SpecError("\n".join(describe(p, schema) for p in error.errors())) from None


def _at_folder(uri: str, folder: str) -> str:
    path = uri.removeprefix("file://")
    return uri if path == uri else f"file://{posixpath.normpath(posixpath.join(folder, path))}"
