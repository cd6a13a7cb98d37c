"""`SpeculativeService`, the whole description, and its readers.

Leaves its parts to their modules, and rules of a placement to `placement_rules`.
"""

import enum
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from outrider.operator.control.settings import ShrinkPolicy
from outrider.operator.naming import API_VERSION, KIND, SCALER_KIND
from outrider.operator.spec import placement_rules
from outrider.operator.spec.document import SpecError, read_document
from outrider.operator.spec.part import ObjectName, Rule, SpecPart
from outrider.operator.spec.reading import (
    Metadata,
    validate,
    validate_stored,
    without_server_fields,
)
from outrider.operator.spec.removed import without_removed
from outrider.operator.spec.roles import Draft, Placement, Target
from outrider.operator.spec.speculation import Speculation
from outrider.operator.spec.surroundings import (
    ClientAccess,
    InferencePool,
    Monitoring,
    NetworkPolicy,
    PodDisruptionBudget,
    Topology,
)


class Suspend(enum.StrEnum):
    """State of a service: running or suspended."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"


class Spec(SpecPart):
    """Description of the service."""

    rules = (
        *placement_rules.SPEC,
        Rule(
            "!has(self.draft) || 'Draft' in self.speculation.sources",
            "lacks Draft, and there is a draft: leave spec.draft out",
            ".speculation.sources",
        ),
        Rule(
            "!has(self.draftsOf) || (!has(self.draft) && 'Draft' in self.speculation.sources)",
            "must be left out where there is a draft, or speculation.sources lacks Draft: targets"
            " link to one service's drafts",
            ".draftsOf",
        ),
    )

    target: Target
    """The role that answers."""
    draft: Draft | None = None
    """The role that proposes draft tokens; left out, the target has those of `draftsOf`, or its
    other sources alone."""
    drafts_of: ObjectName | None = None
    """Name of another service of the namespace, to whose draft pods the targets link, whatever its
    model and tokenizer. How many there are is that service's to say. No effect on `outrider run`.
    """
    speculation: Speculation = Speculation()
    """Limits of speculation, and the control loop that turns it off and on."""
    access: ClientAccess = ClientAccess()
    """Clients that targets answer."""
    topology: Topology = Topology()
    """Topology of drafts relative to the targets."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Connections to and from the pods."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """Most replicas of a role that evictions may stop at once."""
    monitoring: Monitoring = Monitoring()
    """PodMonitor for Prometheus."""
    inference_pool: InferencePool = InferencePool()
    """InferencePool for gateways of the Gateway API."""
    suspend: Suspend = Suspend.RUNNING
    """Suspended: no pods of either role; everything else stays."""

    @property
    def same_pod(self) -> bool:
        """True if there is a draft and each target's pod holds one."""
        return self.draft is not None and self.draft.placement is Placement.SAME_POD

    @property
    def client_tls(self) -> bool:
        """True if targets speak TLS with their clients."""
        return self.access.tls_secret_ref is not None

    @property
    def shrink_policy(self) -> ShrinkPolicy:
        """`speculation.draftShrink.policy` with its default, which depends on who scales."""
        draft = self.draft
        managed = draft is not None and draft.has_pods and draft.scaling.mode == "Managed"
        default = ShrinkPolicy.WHEN_DISABLED if managed else ShrinkPolicy.NEVER
        return self.speculation.draft_shrink.policy or default


class SpeculativeService(SpecPart):
    """A model served through a target and, if there is one, a draft that proposes tokens to it."""

    rules = (
        Rule(
            "self.metadata.name.size() <= 40 &&"
            " self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "must be lower-case letters, digits and dashes, first a letter, last no dash, at most"
            " 40 characters",
            ".metadata.name",
        ),
        Rule(
            "self.metadata.name != 'default'",
            "must not be default: a service has a ServiceAccount of its name, and each namespace"
            " has one called default that is somebody else's",
            ".metadata.name",
        ),
        Rule(
            "!has(self.spec.draftsOf) || self.spec.draftsOf != self.metadata.name",
            "must be another service's name",
            ".spec.draftsOf",
        ),
    )

    api_version: Literal["outrider.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["SpeculativeService"]
    """Always SpeculativeService."""
    metadata: Metadata
    """Name of the service."""
    spec: Spec
    """Description of the service."""

    @property
    def served_name(self) -> str:
        """The model name that requests use."""
        return self.spec.target.model.served_name or self.metadata.name

    def at_folder(self, folder: str) -> Self:
        """Return a copy whose relative `file://` URIs are taken from `folder`, an absolute path."""
        data = self.model_dump(by_alias=True, exclude_unset=True)
        roles = (data["spec"]["target"], data["spec"].get("draft"))
        for model in (role["model"] for role in roles if role is not None):
            model["uri"] = _at_folder(model["uri"], folder)
        return type(self).model_validate(data)


Warn = Callable[[str], object]
"""Takes a sentence about a description that is read nevertheless."""


def ignore(sentence: str) -> None:
    """Warn nobody."""


def load(text: str, warn: Warn = ignore) -> SpeculativeService:
    """Read one YAML document, with no look at rules between fields; raise `SpecError` that names
    each problem's path, value and what is allowed. `warn` is told of fields that are gone."""
    return load_document(read_document(text), warn)


def load_document(document: Mapping[Any, Any], warn: Warn = ignore) -> SpeculativeService:
    """Read a document as `load` does. Where apiVersion and kind are others, or the kind is another
    of Outrider's, that is the only problem."""
    found = (document.get("apiVersion"), document.get("kind"))
    if found[1] == SCALER_KIND or (found[0] != API_VERSION and found[1] != KIND):
        raise SpecError(
            f"apiVersion {found[0]!r} and kind {found[1]!r} are not served; "
            f"allowed: {API_VERSION} and {KIND}"
        )
    known, gone = without_removed(document)
    for sentence in gone:
        warn(sentence)
    return validate(SpeculativeService, known)


@dataclass(slots=True)
class ServiceReader:
    """Reads one service's objects, and checks one only where the last one said something else.

    Checking every field takes a tenth of a pass; most passes find what the last one found. Rules
    between fields are the API server's to keep.
    """

    unknown: tuple[str, ...] = ()
    """Paths of the fields of the last object that this program does not know. An operator that was
    rolled back meets them, and one whose definitions were upgraded before itself."""
    removed: tuple[str, ...] = ()
    """Sentences about fields of the last object that are gone."""
    _document: Mapping[str, Any] = field(default_factory=dict)
    _service: SpeculativeService | None = None

    def read(self, body: Mapping[str, Any]) -> SpeculativeService:
        """Read an object as an API server shows it, without the server's own fields and without
        unknown ones; raise `SpecError` as `load` does for all else. The document is compared, not
        its version: new defaults of the definition change an object that no client has written."""
        document = without_server_fields(body)
        if self._service is None or document != self._document:
            known, self.removed = without_removed(document)
            self._service, self.unknown = validate_stored(SpeculativeService, known)
            self._document = document
        return self._service


def _at_folder(uri: str, folder: str) -> str:
    path = uri.removeprefix("file://")
    return uri if path == uri else f"file://{posixpath.normpath(posixpath.join(folder, path))}"
