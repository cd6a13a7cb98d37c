"""Settings of the control loop: thresholds, intervals, and the owner of the draft replicas.

`plan` makes them from the service's description; times are in seconds.
"""

import enum
from dataclasses import dataclass, field

from outrider.contract.settings import MAX_GAIN_PERCENT, MAX_NODE_ROWS, SettingsError

MAX_SECONDS = 86_400
MAX_REPLICAS = 1024
MAX_WAITING = 65_536
MAX_WINDOWS = 3600
MAX_GPUS = 65_536


class Mode(enum.StrEnum):
    """Owner of the decision to speculate."""

    ADAPTIVE = "Adaptive"
    """The control loop."""
    STATIC = "Static"
    """The service: on, at its ceiling, whatever is measured."""
    DISABLED = "Disabled"
    """The service: off."""


class Shrink(enum.StrEnum):
    """When draft replicas are given back."""

    NEVER = "Never"
    WHEN_DISABLED = "WhenDisabled"
    """While drafting is off."""
    PROPORTIONAL = "Proportional"
    """While drafting is off, and as sessions become fewer while it is on."""


def _within(name: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:
        raise SettingsError(f"{name}: {value} is not allowed; it must be {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableRule:
    """Thresholds of which each turns drafting off, after `down_windows` windows in a row."""

    gain_below_percent: int | None = None
    """Gain under which drafting does not pay; 0: it always does; None: `break_even`'s."""
    queue_above: int = 5
    """Requests that wait, on the average of the targets; for a colocated draft alone."""
    kv_usage_above_percent: int = 80
    """KV in use, of the fullest target; for a colocated draft alone."""

    def __post_init__(self) -> None:
        _within("disable.gain_below_percent", self.gain_below_percent or 0, 0, MAX_GAIN_PERCENT)
        _within("disable.queue_above", self.queue_above, 2, MAX_WAITING)
        _within("disable.kv_usage_above_percent", self.kv_usage_above_percent, 2, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableRule:
    """Thresholds that bring drafting back, after `up_windows` windows in a row."""

    gain_above_percent: int | None = None
    """Gain that a probe must show; None: `break_even`'s."""
    queue_below: int = 2
    """Requests that wait, on the average of the targets; for a colocated draft alone."""
    kv_usage_below_percent: int = 70
    """KV in use, of the fullest target; for a colocated draft alone."""

    def __post_init__(self) -> None:
        _within("enable.gain_above_percent", self.gain_above_percent or 0, 0, MAX_GAIN_PERCENT)
        _within("enable.queue_below", self.queue_below, 1, MAX_WAITING)
        _within("enable.kv_usage_below_percent", self.kv_usage_below_percent, 1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Intervals of the loop: time between scrapes, and windows before it acts."""

    interval_seconds: int = 15
    """Length of one window."""
    down_windows: int = 2
    """Bad windows in a row that turn drafting off."""
    up_windows: int = 4
    """Good windows in a row that bring it back."""
    cooldown_seconds: int = 60
    """Shortest time between two switches, on or off, and before a ceiling is lowered again."""
    probe_interval_seconds: int = 300
    """Least time off before a probe, and before a ceiling that was lowered is raised again; doubles
    with each that fails."""
    min_passes: int = 50
    """Verify passes with node rows that a window's gain is judged by at least."""

    def __post_init__(self) -> None:
        _within("control.interval_seconds", self.interval_seconds, 1, MAX_SECONDS)
        _within("control.down_windows", self.down_windows, 1, MAX_WINDOWS)
        _within("control.up_windows", self.up_windows, 1, MAX_WINDOWS)
        _within("control.cooldown_seconds", self.cooldown_seconds, 0, MAX_SECONDS)
        _within("control.probe_interval_seconds", self.probe_interval_seconds, 1, MAX_SECONDS)
        _within("control.min_passes", self.min_passes, 1, 1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRule:
    """Bounds of the draft replicas, and when some are given back."""

    managed: bool = True
    """True if the loop owns the number; else it is never written."""
    min_replicas: int = 0
    """Drafts that stay while drafting is off."""
    max_replicas: int = 4
    """Most drafts."""
    shrink: Shrink = Shrink.WHEN_DISABLED
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
    colocated: bool = False
    """True if the draft runs inside the target: there is nothing to link or scale."""

    def __post_init__(self) -> None:
        _within("draft.max_replicas", self.max_replicas, 1, MAX_REPLICAS)
        _within("draft.min_replicas", self.min_replicas, 0, self.max_replicas)
        _within("draft.after_seconds", self.after_seconds, 0, MAX_SECONDS)
        _within("draft.idle_seconds", self.idle_seconds, 0, MAX_SECONDS)
        _within("draft.sessions_per_replica", self.sessions_per_replica, 1, MAX_WAITING)
        _within("draft.draft_gpus", self.draft_gpus, 0, MAX_GPUS)
        _within("draft.target_gpus", self.target_gpus, 0, MAX_GPUS)
        if self.managed and self.colocated:
            raise SettingsError("draft.managed: true is not allowed; a colocated draft is one")

    @property
    def least_on(self) -> int:
        """Fewest drafts while drafting is wanted."""
        return max(1, self.min_replicas)

    @property
    def returnable(self) -> bool:
        """True if the loop gives drafts back while drafting is off."""
        return self.managed and self.shrink is not Shrink.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """All settings that the policy depends on; raises `SettingsError`."""

    mode: Mode = Mode.ADAPTIVE
    """Owner of the decision to speculate."""
    disabled_because: str = "speculation.mode is Disabled"
    """Why the mode is `DISABLED`, where it is, in words for the log."""
    max_rows: int = 16
    """Highest ceiling of node rows of one sequence in one pass."""
    disable: DisableRule = field(default_factory=DisableRule)
    """Thresholds that turn drafting off."""
    enable: EnableRule = field(default_factory=EnableRule)
    """Thresholds that bring it back."""
    control: Rhythm = field(default_factory=Rhythm)
    """Intervals and windows of the loop."""
    stale_after_seconds: int = 60
    """Age at which a pod's metrics say nothing any more."""
    draft: ScalingRule = field(default_factory=ScalingRule)
    """Draft replicas."""

    def __post_init__(self) -> None:
        _within("max_rows", self.max_rows, 1, MAX_NODE_ROWS)
        _within("stale_after_seconds", self.stale_after_seconds, 1, MAX_SECONDS)
        off, on = self.disable, self.enable
        if on.gain_above_percent is not None:
            least = (off.gain_below_percent or 0) + 1
            _within("enable.gain_above_percent", on.gain_above_percent, least, MAX_GAIN_PERCENT)
        _within("enable.queue_below", on.queue_below, 1, off.queue_above - 1)
        most = off.kv_usage_above_percent - 1
        _within("enable.kv_usage_below_percent", on.kv_usage_below_percent, 1, most)
