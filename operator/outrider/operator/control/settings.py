"""Settings of the control loop: thresholds, intervals, and the owner of the draft replicas.

`plan` makes them from the service's description, which has been checked; times are in seconds.
"""

import enum
from dataclasses import dataclass, field

MAX_REPLICAS = 1024
WINDOWS = 8
"""Windows by which gain is judged at a time, two minutes by default: a probe lasts so long, and the
memory is stored as often while drafting is on."""
STALE_WINDOWS = 4
"""Windows after which a pod's metrics say nothing any more, but not before `STALE_SECONDS`."""
STALE_SECONDS = 10
MIN_PASSES = 50
"""Verify passes in a window of a service that has work."""


class SpeculationMode(enum.StrEnum):
    """Owner of the decision whether and how far to draft."""

    ADAPTIVE = "Adaptive"
    """The control loop."""
    STATIC = "Static"
    """The service: on, whatever is measured."""
    DISABLED = "Disabled"
    """The service: off."""


class ShrinkPolicy(enum.StrEnum):
    """When the operator removes draft replicas."""

    NEVER = "Never"
    WHEN_DISABLED = "WhenDisabled"
    """While drafting is off."""
    PROPORTIONAL = "Proportional"
    """While drafting is off, and as sessions become fewer while it is on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRule:
    """Bounds of the draft replicas, and when some are given back."""

    managed: bool = True
    """True if the loop owns the number, which no colocated draft has; else it is never written."""
    min_replicas: int = 0
    """Drafts that stay while drafting is off."""
    max_replicas: int = 4
    """Most drafts."""
    shrink: ShrinkPolicy = ShrinkPolicy.WHEN_DISABLED
    """When drafts are given back."""
    after_seconds: int = 120
    """Time for which drafting is off, or fewer drafts suffice, before some are given back."""
    idle_seconds: int = 900
    """Time without work before drafting goes off and drafts are given back; 0: never."""
    sessions_per_replica: int = 8
    """Sessions that one draft holds; Proportional counts in these."""
    draft_gpus: float = 0
    """GPUs of one draft; 0: none, or not known."""
    target_gpus: float = 0
    """GPUs of one target, counted as if they were of the same kind."""
    draft_price: float = 0
    """Price of one draft's GPUs for an hour; 0: it has none, or it is not known."""
    target_price: float = 0
    """Price of one target's GPUs for an hour; 0: it has none, or it is not known."""
    colocated: bool = False
    """True if the draft runs inside the target: there is nothing to link or scale."""

    @property
    def least_on(self) -> int:
        """Fewest drafts while drafting is wanted."""
        return max(1, self.min_replicas)

    def returns(self, drafts: int) -> bool:
        """True if the loop gives some of so many drafts back while drafting is off."""
        return self.given_back(drafts) > 0

    def given_back(self, drafts: int) -> int:
        """Return how many of so many drafts the loop gives back while drafting is off."""
        shrinks = self.managed and self.shrink is not ShrinkPolicy.NEVER
        return max(0, drafts - self.min_replicas) if shrinks else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """All settings that the policy depends on."""

    mode: SpeculationMode = SpeculationMode.ADAPTIVE
    """Owner of the decision to speculate."""
    draftless: str = ""
    """Why there are no drafts to decide about; empty: the service has some."""
    max_rows: int = 16
    """Ceiling of node rows of one sequence in one pass."""
    gain_below_percent: int | None = None
    """Gain under which drafting does not pay; 0: it always does; None: `break_even`'s."""
    gain_above_percent: int | None = None
    """Gain that a probe must show for drafting to come back; None: the same."""
    interval_seconds: int = 15
    """Length of one window: the time between two scrapes."""
    probe_interval_seconds: int = 2400
    """Least time off before a probe; `probes` has how it grows."""
    draft: ScalingRule = field(default_factory=ScalingRule)
    """Draft replicas."""

    @property
    def judged_seconds(self) -> int:
        """Length of a probe, and shortest time between two switches."""
        return WINDOWS * self.interval_seconds

    @property
    def stale_after_seconds(self) -> int:
        """Age at which a pod's metrics say nothing any more."""
        return stale_after(self.interval_seconds)


def stale_after(interval_seconds: int) -> int:
    """Return the age at which metrics that are read once an interval say nothing any more."""
    return max(STALE_SECONDS, STALE_WINDOWS * interval_seconds)
