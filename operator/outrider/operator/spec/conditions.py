"""The conditions of a `SpeculativeService` and the reasons each may have.

Names only, each with its meaning; `status.conditions` decides which of them holds.
"""

import enum
from types import MappingProxyType

from outrider.operator.control.reasons import LoopReason


class ConditionType(enum.StrEnum):
    """Observations of a service; True is good but for the last four."""

    READY = "Ready"
    """Requests are answered, with or without drafts, and all pods have been of the newest
    generation: what goes down later changes nothing as long as one target answers."""
    TARGET_AVAILABLE = "TargetAvailable"
    """As many targets are ready as are wanted."""
    DRAFT_AVAILABLE = "DraftAvailable"
    """As many drafts are ready as are wanted now, and at least one; in their targets' pods those
    are ready that are linked."""
    LINK_ESTABLISHED = "LinkEstablished"
    """Ready targets are linked to ready drafts, or no link is wanted."""
    SPECULATION_ACTIVE = "SpeculationActive"
    """Drafting is on."""
    METRICS_AVAILABLE = "MetricsAvailable"
    """The metrics that decisions need are there and fresh; if not, everything is left as it is."""
    PROGRESSING = "Progressing"
    """A rollout or a change of replicas is under way."""
    DEGRADED = "Degraded"
    """Something needs a person."""
    RECONCILING = "Reconciling"
    """The newest generation is being carried out; for `kstatus`, by which Flux and Helm 4 wait."""
    STALLED = "Stalled"
    """The newest generation cannot be carried out before a person mends what Degraded says; also
    for `kstatus`."""


class ReadyReason(enum.StrEnum):
    """Reasons of Ready."""

    SERVING = "Serving"
    """At least one target answers, and the newest generation has been rolled out."""
    TARGET_NOT_READY = "TargetNotReady"
    """No target answers; TargetAvailable says more."""
    ROLLING_OUT = "RollingOut"
    """Targets answer, but pods are not all of the newest generation yet; Progressing says more."""
    ROLLOUT_FAILED = "RolloutFailed"
    """Targets answer, but the newest generation could not be rolled out; Degraded says more."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is Suspended."""
    INVALID_SPEC = "InvalidSpec"
    """The operator cannot read the description; the message names the field."""


class TargetReason(enum.StrEnum):
    """Reasons of TargetAvailable."""

    READY = "Ready"
    """All wanted targets are ready."""
    PODS_NOT_READY = "PodsNotReady"
    """Pods start, prepare their model, or crash; see their events and logs."""
    QUEUED = "Queued"
    """A pod is held by a scheduling gate, as in a queue of Kueue's."""
    CLAIM_NOT_BOUND = "ClaimNotBound"
    """A pod's volume claim has no volume; the message names the claim and its storage class."""
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    """No node has room for a pod; the message quotes the scheduler."""
    SCALED_TO_ZERO = "ScaledToZero"
    """None is wanted."""


class DraftReason(enum.StrEnum):
    """Reasons of DraftAvailable."""

    READY = "Ready"
    """All wanted drafts are ready."""
    PODS_NOT_READY = "PodsNotReady"
    """Pods start, prepare their model, or crash; targets decode plainly meanwhile."""
    QUEUED = "Queued"
    """A pod is held by a scheduling gate; targets decode plainly meanwhile."""
    CLAIM_NOT_BOUND = "ClaimNotBound"
    """A pod's volume claim has no volume; targets decode plainly meanwhile."""
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    """No node has room for a pod; targets decode plainly meanwhile."""
    SCALED_TO_ZERO = "ScaledToZero"
    """None is wanted now: drafting is off, and its hardware was given back."""
    COLOCATED = "Colocated"
    """The draft runs inside the target."""
    NOT_REQUIRED = "NotRequired"
    """The service has no draft."""


class LinkReason(enum.StrEnum):
    """Reasons of LinkEstablished."""

    CONNECTED = "Connected"
    """Every ready target is linked to every ready draft."""
    PARTIALLY_CONNECTED = "PartiallyConnected"
    """Some pairs have none; the message counts those that have."""
    CONNECTING = "Connecting"
    """No link is up yet, or all were lost and are tried again."""
    REFUSED = "Refused"
    """The pair cannot work: protocols differ, or no tokens are in both; the message quotes it."""
    NOT_REQUIRED = "NotRequired"
    """There is no draft to link to, by wish."""


class MetricsReason(enum.StrEnum):
    """Reasons of MetricsAvailable."""

    METRICS_FOUND = "MetricsFound"
    """Every ready pod was read."""
    METRICS_MISSING = "MetricsMissing"
    """Pods do not answer, or answer without what is needed; the message names the first."""
    METRICS_STALE = "MetricsStale"
    """The newest are older than four windows, and than 10 s."""
    NO_PODS = "NoPods"
    """There is no ready pod to read."""


class ProgressingReason(enum.StrEnum):
    """Reasons of Progressing."""

    COMPLETE = "Complete"
    """Every pod is as wanted."""
    ROLLING_OUT = "RollingOut"
    """New pods start beside the old ones."""
    RECREATING = "Recreating"
    """Old pods end before new ones start: an outage, as `update.strategy` asks."""
    SCALING = "Scaling"
    """Replicas are added, or drained and taken away."""
    ROLLOUT_FAILED = "RolloutFailed"
    """New pods do not get ready; the old ones keep serving."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is Suspended."""


class DegradedReason(enum.StrEnum):
    """Reasons of Degraded."""

    AS_EXPECTED = "AsExpected"
    """Nothing needs a person."""
    INVALID_SPEC = "InvalidSpec"
    """The operator cannot read the description; the message names the field."""
    ROLLOUT_FAILED = "RolloutFailed"
    """New pods do not get ready; mend the description or undo the change."""
    REPLICAS_CONTESTED = "ReplicasContested"
    """Another field manager has written the number of replicas again after it was repaired; the
    message names it. The number is left alone for an hour, or until the service is edited."""
    APPLY_FAILED = "ApplyFailed"
    """The API server, or a webhook that it asks, has failed twice or more at an object; the message
    quotes it. It is tried again; everything else goes on, but for a workload whose pods would start
    from it."""
    OPERATOR_FAILED = "OperatorFailed"
    """The operator itself fails at this service; its log has the whole error."""
    FOREIGN_OBJECT = "ForeignObject"
    """An object of a name that is needed has another owner; it is left alone."""
    PODS_FAILING = "PodsFailing"
    """A pod crashes or cannot start; the message quotes the cluster."""
    DRAFT_LOST = "DraftLost"
    """Drafts are wanted and have not been linked for 5 minutes; targets decode plainly."""
    FORBIDDEN = "Forbidden"
    """An object cannot be made: the API server refuses it, or does not know its kind; the message
    quotes it. Everything else goes on, but for a workload whose pods would start from it."""


class ReconcilingReason(enum.StrEnum):
    """Reasons of Reconciling."""

    PROGRESSING = "Progressing"
    """Pods are replaced, added or taken away; the message is that of Progressing."""
    APPLYING = "Applying"
    """Not every object could be written; it is tried again."""
    COMPLETE = "Complete"
    """Nothing is under way."""


class StalledReason(enum.StrEnum):
    """Reasons of Stalled."""

    INVALID_SPEC = "InvalidSpec"
    """The operator cannot read the description."""
    OPERATOR_FAILED = "OperatorFailed"
    """The operator itself fails at this service."""
    FORBIDDEN = "Forbidden"
    """The API server refuses an object."""
    FOREIGN_OBJECT = "ForeignObject"
    """An object of a name that is needed has another owner."""
    ROLLOUT_FAILED = "RolloutFailed"
    """New pods do not get ready."""
    NOT_STALLED = "NotStalled"
    """Nothing is in the way."""


REASONS = MappingProxyType(
    {
        ConditionType.READY: ReadyReason,
        ConditionType.TARGET_AVAILABLE: TargetReason,
        ConditionType.DRAFT_AVAILABLE: DraftReason,
        ConditionType.LINK_ESTABLISHED: LinkReason,
        ConditionType.SPECULATION_ACTIVE: LoopReason,
        ConditionType.METRICS_AVAILABLE: MetricsReason,
        ConditionType.PROGRESSING: ProgressingReason,
        ConditionType.DEGRADED: DegradedReason,
        ConditionType.RECONCILING: ReconcilingReason,
        ConditionType.STALLED: StalledReason,
    }
)
"""The reasons of each condition."""
