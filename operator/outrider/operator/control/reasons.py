"""Reasons of the control loop's decisions: they become conditions, events and labels.

Names only; `policy` decides which of them holds.
"""

import enum


class LoopReason(enum.StrEnum):
    """Why speculation is as it is: the reason of the condition SpeculationActive."""

    ACTIVE = "Active"
    """Drafting is on, and a draft is linked."""
    NO_DRAFT = "NoDraft"
    """The service has no draft."""
    DISABLED_BY_USER = "DisabledByUser"
    """The mode is Disabled."""
    LOW_GAIN = "LowGain"
    """Drafting is off: it did not pay."""
    IDLE = "Idle"
    """Drafting is off: the targets have had no work for long."""
    DRAFT_STARTING = "DraftStarting"
    """Drafting is to come on: drafts start or link."""
    DRAFT_LOST = "DraftLost"
    """Drafting is wanted, and no draft is linked."""
    NO_TARGETS = "NoTargets"
    """No target is asked for, so none drafts; all else stays as it is until there is one."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    """Nothing is known of the targets, so everything stays as it is."""
    PROBING = "Probing"
    """Drafting is on, or about to be, to see whether it pays again."""


class Hold(enum.StrEnum):
    """Why the number of draft replicas waits, though another is wanted."""

    REPLICAS_CONTESTED = "ReplicasContested"
    """Another owner writes it; it is left alone."""
    REPLICAS_PENDING = "ReplicasPending"
    """The last number has not been reached yet."""
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    """A rollout goes on."""
    DRAINING = "Draining"
    """Drafts still hold sessions, or some target still drafts."""


class PhaseChange(enum.StrEnum):
    """Changes in one pass: reasons of events."""

    DRAFTING_ON = "DraftingOn"
    DRAFTING_OFF = "DraftingOff"
    DRAFTS_WAKING = "DraftsWaking"
    PROBE_STARTED = "ProbeStarted"
    DRAFTS_SCALED = "DraftsScaled"
